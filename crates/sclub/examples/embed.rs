//! The library in thirty lines: two groups of users with different tastes, not known in advance.
//! Run it with `cargo run -p sclub --example embed`.

use sclub::{ItemSet, Params, Policy, Sclub, Users};

fn main() -> Result<(), sclub::Error> {
    let mut policy = Sclub::new(3, Users::Appear, &Params::tuned())?;
    let (mut brought, rounds) = (0.0, 12_000u64);
    for round in 0..rounds {
        let user = round % 6; // even users like comedy, odd ones drama
        // Four films: how much comedy, how much drama, and a constant.
        let films: Vec<f64> = (0..4)
            .flat_map(|film| {
                let angle = (round * 7 + film * 31) as f64;
                [angle.sin(), angle.cos(), 1.0]
            })
            .collect();
        let items = ItemSet::from_rows(3, &films)?;
        let shown = policy.recommend(user, &items)?.index;
        let film = &films[shown * 3..shown * 3 + 3];
        let reward = if user % 2 == 0 { film[0] } else { film[1] };
        policy.learn(user, film, reward)?;
        brought += reward / rounds as f64;
    }
    println!("average reward {brought:.3} after {rounds} rounds; choosing blindly brings 0.000");
    for (cluster, users) in policy.partition() {
        println!("cluster {cluster}: users {users:?}");
    }
    Ok(())
}
