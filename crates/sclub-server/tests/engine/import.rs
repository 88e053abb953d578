//! An import into a folder that has a catalogue and other spaces, cut off at any point.

use std::fs;
use std::path::Path;

use sclub_server::engine::{Engine, Import, ImportRow};
use sclub_server::env::Env;
use sclub_server::event::{DescribedItem, Item};
use sclub_server::store::Folder;
use tokio::runtime::Runtime;

use crate::bench::{Bench, of, wait_until};
use crate::common::disk::Faults;
use crate::common::{copy_of, files, new_folder};
use crate::experiments::arm;

const ROWS: u64 = 40;

/// Imports rows into a folder.
fn import(env: &Env, data: &Path) -> Result<(), String> {
    let settings = of("linucb-ind");
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let mut import = Import::begin(env, data, &settings).map_err(|error| failed(&error))?;
    let item = Item {
        id: "new".to_owned(),
        features: vec![0.5, 0.5, 0.5],
    };
    let learn = || {
        import.upsert(vec![DescribedItem::from(item)])?;
        for row in 0..ROWS {
            let row = ImportRow {
                user: ["u", "v", "w"][row as usize % 3],
                item: ["a", "b", "new"][row as usize % 3],
                features: None,
                reward: (row % 2) as f64,
                at: Some(row),
            };
            import.add(&row)?.unwrap();
        }
        Ok(())
    };
    let learned: Result<(), sclub_server::engine::FoldError> = learn();
    if let Err(error) = learned {
        import.abandon();
        return Err(error.to_string());
    }
    let finished = Runtime::new().unwrap().block_on(import.finish());
    finished.map(drop).map_err(|error| failed(&error))
}

/// The number of rounds and of items in a folder, after a start of the server.
fn start(data: &Path) -> (u64, usize) {
    let engine = Engine::open(Env::real(), data, &of("linucb-ind")).unwrap();
    let state = engine.state();
    let seen = (state.rounds(), state.catalogue().unwrap().len());
    drop(state);
    Runtime::new().unwrap().block_on(engine.close());
    drop(engine);
    // Threads of the engine may end a moment later.
    wait_until(|| Folder::open(&Env::real(), data).is_ok());
    seen
}

/// The files beside those of the folder itself: their names and contents.
fn others(data: &Path) -> Vec<(String, Vec<u8>)> {
    let is_other = |name: &str| name.starts_with("spaces") || name == "note.txt";
    let names = files(data).into_iter();
    let names = names.map(|file| (file.strip_prefix(data).unwrap().display().to_string(), file));
    names
        .filter(|(name, _)| is_other(name))
        .map(|(name, file)| (name, fs::read(file).unwrap()))
        .collect()
}

#[test]
fn an_import_that_is_cut_off_leaves_the_old_folder_or_the_new_one_and_all_else() {
    let bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let old = bench.close();
    fs::create_dir_all(old.path().join("spaces/other")).unwrap();
    fs::write(old.path().join("spaces/other/settings.toml"), "dim = 3\n").unwrap();
    fs::write(old.path().join("note.txt"), "mine").unwrap();
    let before = others(old.path());
    assert_eq!(before.len(), 2);
    assert_eq!(start(old.path()), (0, 3));

    let (mut kept, mut taken) = (0, 0);
    for changes in 0.. {
        let copy = copy_of(old.path());
        let (faults, env) = Faults::new(Env::real());
        faults.stop_after(changes);
        let done = import(&env, copy.path());
        let is_whole = faults.changes_left() != Some(0);
        assert_eq!(others(copy.path()), before, "cut off after {changes}");
        let seen = start(copy.path());
        match seen {
            (0, 3) => kept += 1,
            (ROWS, 4) => taken += 1,
            seen => panic!("cut off after {changes}: {seen:?}"),
        }
        assert!(done.is_err() || seen.0 != 0, "{done:?}");
        assert_eq!(others(copy.path()), before, "cut off after {changes}");
        let names: Vec<_> = fs::read_dir(copy.path()).unwrap().collect();
        let left = names.into_iter().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left
            .filter(|name| name.to_str().is_some_and(|name| name.starts_with("import")))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        // An import that was cut off early can be repeated.
        if seen.0 == 0 && changes % 7 == 0 {
            import(&Env::real(), copy.path()).unwrap();
            assert_eq!(start(copy.path()), (ROWS, 4));
        }
        if is_whole {
            assert_eq!(done, Ok(()));
            break;
        }
    }
    assert!(kept > 20 && taken > 5, "{kept} {taken}");
}

#[test]
fn an_import_drops_no_experiment() {
    let bench = Bench::with_items(Env::real(), &of("linucb-ind"));
    let arms = vec![arm("a", "linucb-ind", 5_000), arm("b", "linucb-one", 5_000)];
    let begun = bench.engine.start_experiment("x", arms);
    bench.runtime.block_on(begun).unwrap();
    let folder = bench.close();
    let error = import(&Env::real(), folder.path()).unwrap_err();
    assert!(error.contains("it has experiments"), "{error}");
    let bench = Bench::at(folder, Env::real(), &of("linucb-ind"));
    assert!(bench.engine.experiments().0.is_some());
}

#[test]
fn a_failed_import_leaves_no_new_folder() {
    let folder = new_folder();
    let data = folder.path().join("shop");
    let settings = of("linucb-ind");
    let import = Import::begin(&Env::real(), &data, &settings).unwrap();
    // The folder is in use meanwhile.
    let error = Import::begin(&Env::real(), &data, &settings).err().unwrap();
    assert!(error.to_string().contains("in use"), "{error}");
    import.abandon();
    assert!(!data.exists());
    // A file that was there stays, whatever happens.
    fs::create_dir(&data).unwrap();
    let import = Import::begin(&Env::real(), &data, &settings).unwrap();
    fs::write(data.join("note.txt"), "mine").unwrap();
    import.abandon();
    assert!(data.join("note.txt").exists() && !data.join("importing").exists());
}
