//! `sclub` with a policy of one's own: `cargo run --example own_policy -- run --policies mine,random`

use sclub::*;

/// One weight vector for all users, moved a step along the error of each prediction.
struct Mine(Vec<f64>, Values, u64);

impl Policy for Mine {
    fn dim(&self) -> usize {
        self.0.len()
    }
    fn rounds(&self) -> u64 {
        self.2
    }
    fn explain(&self, _: UserId, items: &ItemSet, scores: &mut Vec<Score>) -> Result<(), Error> {
        let mean = |item| items.item(item).zip(&self.0).map(|(x, w)| x * w).sum();
        *scores = (0..items.len()).map(mean).map(Score::certain).collect();
        Ok(())
    }
    fn learn_round(&mut self, round: &[Observation], _: &mut Vec<Change>) -> Result<(), Error> {
        check_round(round, self.dim())?;
        let step = self.1.number("step").unwrap_or(0.0);
        self.2 += 1;
        for Observation { item, reward, .. } in round {
            let mean: f64 = item.iter().zip(&self.0).map(|(x, w)| x * w).sum();
            let moved = item.iter().map(|x| step * (reward - mean) * x);
            self.0.iter_mut().zip(moved).for_each(|(w, by)| *w += by);
        }
        Ok(())
    }
    fn digest(&self) -> u64 {
        let words = self.0.iter().map(|w| w.to_bits());
        words.fold(self.2, |digest, word| digest.rotate_left(7) ^ word)
    }
}

static SPEC: Spec = Spec {
    name: "mine",
    title: "Mine",
    summary: "One weight vector for all users, by gradient steps",
    citation: "Widrow and Hoff, 1960",
    colors: ["#A0522D", "#DEB887"],
    revision: 1,
    presets: &[Preset::Default],
    constants: &[Constant::new(
        "step",
        "How far an error moves it",
        Range::POSITIVE,
        |_, _| Ok(Value::Number(0.1)),
    )],
    can: Abilities::NONE,
    new: |setup, values| Ok(Box::new(Mine(vec![0.0; setup.dim], values.clone(), 0))),
    load: None,
    gather: None,
};

fn main() -> std::process::ExitCode {
    sclub::register(&SPEC).expect("no other policy is called mine");
    sclub_cli::main()
}
