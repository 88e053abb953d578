//! A user who was forgotten stays so after a restart, also when the state no longer knows of it.

use super::bench::{Bench, settings};
use crate::engine::common::clock::Moved;
use crate::engine::common::disk::Faults;
use crate::engine::common::{copy_of, new_folder};
use crate::env::Env;
use crate::identity::Identity;
use crate::settings::Settings;
use crate::store::Folder;

const USER: &str = "philomena";

/// Settings with which a forgotten user is known for a minute and a second.
fn brief() -> Settings {
    Settings {
        lifetime: 1,
        ..settings()
    }
}

/// Serves others until the state no longer knows that the user was forgotten.
fn let_expire(bench: &Bench, clock: &Moved) {
    for _ in 0..3 {
        clock.pass(50_000);
        bench.serve("other");
    }
    assert!(!bench.engine.state().is_forgotten(USER, 0));
}

fn seen(bench: &Bench, user: &str) -> usize {
    bench.engine.seen(user).len()
}

#[test]
fn a_forgotten_user_is_not_recalled_from_the_journal() {
    for is_journaled in [true, false] {
        let (clock, env) = Moved::new(Env::real());
        let (faults, env) = Faults::new(env);
        let folder = new_folder();
        let bench = Bench::open(env.clone(), folder.path(), &brief());
        bench.put_items();
        bench.serve(USER);
        bench.show(USER);
        bench.serve("other");
        bench.export();
        if !is_journaled {
            faults.refuse_writes("journal");
        }
        bench.forget(USER);
        if is_journaled {
            // The user comes back.
            bench.show(USER);
            bench.export();
        }
        let_expire(&bench, &clock);
        if is_journaled {
            bench.export();
        }
        let expected = usize::from(is_journaled);
        assert_eq!(seen(&bench, USER), expected);
        faults.accept_writes();
        let killed = copy_of(folder.path());
        let again = Bench::open(env, killed.path(), &brief());
        assert_eq!(seen(&again, USER), expected, "{is_journaled}");
        assert!(seen(&again, "other") > 0);
        again.export();
        assert_eq!(seen(&again, USER), expected, "{is_journaled}");
    }
}

#[test]
fn a_node_that_was_away_does_not_recall_who_was_forgotten_meanwhile() {
    let (clock, env) = Moved::new(Env::real());
    let folders = [(); 3].map(|()| new_folder());
    let stream = Folder::open(&env, folders[0].path()).unwrap();
    let identity = Identity::new(&brief(), &*env.random).unwrap();
    stream.set_identity(&identity.encode()).unwrap();
    let away = {
        let node = Bench::follow(&env, folders[1].path(), &stream, &brief());
        node.lead(&stream);
        node.put_items();
        for user in [USER, "other"] {
            node.serve(user);
            node.show(user);
        }
        node.export();
        // The other one begins with it: it cannot follow these files.
        node.snapshot();
        assert_eq!((seen(&node, USER), seen(&node, "other")), (2, 2));
        copy_of(folders[1].path())
    };
    let other = Bench::follow(&env, folders[2].path(), &stream, &brief());
    other.lead(&stream);
    other.forget(USER);
    let_expire(&other, &clock);
    other.snapshot();
    // It begins with the snapshot, which does not know of the request.
    let back = Bench::follow(&env, away.path(), &stream, &brief());
    assert_eq!(back.engine.state().position(), stream.log.last());
    assert_eq!((seen(&back, USER), seen(&back, "other")), (0, 2));
    let export = back.export();
    assert!(
        export.contains("other") && !export.contains(USER),
        "{export}"
    );
    assert_eq!((seen(&back, USER), seen(&back, "other")), (0, 2));
}
