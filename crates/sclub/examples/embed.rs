//! The library in thirty lines: two kinds of people, two kinds of items, nobody told who is who.
//! Run it with `cargo run --release -p sclub --example embed`.

use sclub::{ItemSet, Params, Policy, Sclub, Users};

fn main() -> Result<(), sclub::Error> {
    let mut policy = Sclub::new(3, Users::Appear, &Params::tuned())?;
    // Three features each: how much comedy, how much drama, and a constant.
    let films = [[0.6, 0.1, 0.5], [0.1, 0.6, 0.5], [0.4, 0.3, 0.5]];
    let items = ItemSet::from_rows(3, films.as_flattened())?;

    let (mut liked, rounds) = (0.0, 6000);
    for round in 0..rounds {
        let user = round % 6; // even users like comedy, odd ones drama
        let shown = policy.recommend(user, &items)?.index;
        let [comedy, drama, _] = films[shown];
        let reward = if user % 2 == 0 { comedy } else { drama };
        policy.learn(user, &films[shown], reward)?;
        liked += reward / rounds as f64;
    }

    println!("average reward {liked:.3}, the best possible is 0.600");
    for (cluster, users) in policy.partition() {
        println!("cluster {cluster}: users {users:?}");
    }
    Ok(())
}
