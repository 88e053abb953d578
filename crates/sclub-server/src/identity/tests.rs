//! Folders of this and of earlier versions, and settings that differ from theirs.

use sclub::{Exploration, Index, Params, SoftParams};

use super::*;

const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// The identity of a folder made before each policy declared its own constants.
fn old(format: u32, policy: &str, preset: &str, constants: &str) -> Identity {
    let text = format!(
        r#"{{"format":{format},"policy":"{policy}","preset":"{preset}","constants":{constants},"dim":null,"key":"{KEY}"}}"#
    );
    Identity::decode(text.as_bytes()).unwrap()
}

fn of(policy: &str, constants: &[(&str, Literal)]) -> Settings {
    let constants = constants.iter().cloned();
    Settings {
        policy: Some(policy.to_owned()),
        constants: constants.map(|(name, of)| (name.to_owned(), of)).collect(),
        ..Settings::default()
    }
}

fn new(settings: &Settings) -> Result<Identity, Misfit> {
    Identity::new(settings, &*crate::env::Env::real().random)
}

fn refused(settings: &Settings) -> String {
    new(settings).unwrap_err().0
}

#[test]
fn an_encoded_identity_is_decoded() {
    for spec in servable() {
        for preset in presets(spec) {
            let settings = Settings {
                preset: (presets(spec).len() > 1).then(|| preset.to_string()),
                dim: Some(3),
                ..of(spec.name, &[])
            };
            let identity = new(&settings).unwrap();
            assert_eq!(identity.preset(), preset);
            let again = Identity::decode(&identity.encode()).unwrap();
            assert_eq!(again, identity);
            assert_eq!(again.check(&settings), Ok(()));
            assert!(again.overrides().is_empty());
            assert_eq!(identity.make(3, 2).unwrap().dim(), 3);
        }
    }
    let given = [
        ("beta", Literal::Number(0.25)),
        ("index", Literal::Text("squared".to_owned())),
    ];
    let identity = new(&of("sclub", &given)).unwrap();
    let again = Identity::decode(&identity.encode()).unwrap();
    assert_eq!(again, identity);
    assert_eq!(
        again.overrides(),
        given.map(|(name, of)| (name.to_owned(), of)).into()
    );
    assert_eq!(again.constants.get("beta_scale"), Value::Unset);
}

#[test]
fn folders_of_the_papers_policies_made_before_open() {
    let constants =
        r#"{"alpha_theta":3.25,"alpha_p":0.5,"squared_norm":true,"beta":null,"beta_scale":0.1}"#;
    let identity = old(1, "sclub", "tuned", constants);
    let expected = Params {
        alpha_theta: 3.25,
        alpha_p: 0.5,
        index: Index::SquaredNorm,
        exploration: Exploration::Growing { scale: 0.1 },
    };
    assert_eq!(Params::from_values(&identity.constants), expected);
    assert_eq!(identity.preset(), Preset::Tuned);
    for policy in ["linucb-one", "linucb-ind"] {
        let constants = r#"{"alpha_theta":1.0,"alpha_p":0.7071067811865476,"squared_norm":false,"beta":0.5,"beta_scale":null}"#;
        let identity = old(1, policy, "released", constants);
        let params = Params::from_values(&identity.constants);
        assert_eq!(params.index, Index::Norm);
        assert_eq!(params.exploration, Exploration::Fixed(0.5));
        assert_eq!(identity.preset(), Preset::Released);
        let again = Identity::decode(&identity.encode()).unwrap();
        assert_eq!(again, identity);
    }
}

#[test]
fn folders_of_sclub_soft_made_before_open() {
    let constants = r#"{"clusters":true,"half_life":50.0,"between":1.1,"within":0.3,"alone":1.0,"first":500,"growth":1.2,"patience":1.5,"steps":20,"seeds":15,"members":4,"colds":1,"cold_from":10.0,"cold_to":100.0,"temper":0.1,"caution":11.5}"#;
    let identity = old(2, "sclub-soft", "default", constants);
    let expected = SoftParams {
        inline: false,
        half_life: Some(50.0),
        caution: 11.5,
        within: 0.3,
        alone: 1.0,
        ..SoftParams::default()
    };
    assert_eq!(
        SoftParams::from_values(&identity.constants, false),
        expected
    );
    let overrides = [
        ("alone", 1.0),
        ("caution", 11.5),
        ("half-life", 50.0),
        ("within", 0.3),
    ];
    let overrides = overrides.map(|(name, of)| (name.to_owned(), Literal::Number(of)));
    assert_eq!(identity.overrides(), overrides.into());
    let unset = constants.replace("50.0", "null");
    let identity = old(2, "sclub-soft", "default", &unset);
    assert_eq!(identity.constants.get("half_life"), Value::Unset);
}

#[test]
fn invalid_settings_are_refused() {
    for name in ["club", "strange"] {
        let why = refused(&of(name, &[]));
        let start =
            format!("policy '{name}' cannot be served; use one of sclub, sclub-soft, gaussian");
        assert!(why.starts_with(&start), "{why}");
    }
    let with = |preset: &str, policy: &str| Settings {
        preset: Some(preset.to_owned()),
        ..of(policy, &[])
    };
    assert_eq!(
        refused(&with("theory", "sclub")),
        "preset 'theory' cannot be served with sclub; use one of tuned, released"
    );
    assert_eq!(
        refused(&with("tuned", "sclub-soft")),
        "preset is not a setting of policy sclub-soft; omit preset, or use one of the policies that have it: \
         sclub, linucb-ind, linucb-one"
    );
    let half = [("half-life", Literal::Number(50.0))];
    assert_eq!(
        refused(&of("sclub", &half)),
        "half-life is not a setting of policy sclub; omit half-life, or use one of the policies that have it: \
         sclub-soft, gaussian"
    );
    let negative = [("alpha-theta", Literal::Number(-1.0))];
    assert_eq!(
        refused(&of("sclub", &negative)),
        "alpha-theta: it is -1, and must be positive and finite"
    );
    let both = [
        ("beta", Literal::Number(1.0)),
        ("beta-scale", Literal::Number(1.0)),
    ];
    let why = refused(&of("sclub", &both));
    assert!(why.contains("cannot be given together with"), "{why}");
}

#[test]
fn an_identity_of_another_policy_is_refused() {
    let identity = new(&of("sclub", &[])).unwrap();
    let text = String::from_utf8(identity.encode()).unwrap();
    let why = |from: &str, to: &str| {
        let text = text.replace(from, to);
        Identity::decode(text.as_bytes()).unwrap_err().0
    };
    assert_eq!(
        why("\"sclub\"", "\"linucb-ind\""),
        "policy linucb-ind has no constant 'alpha_p', which the folder sets"
    );
    assert!(why("\"sclub\"", "\"club\"").contains("cannot be served"));
    assert!(why("tuned", "theory").contains("cannot be served"));
    assert!(why("2.5", "-2.5").contains("positive"));
    assert!(why("2.5", "\"many\"").contains("not a number"));
    assert!(why("\"norm\"", "\"cubed\"").contains("squared"));
}

#[test]
fn settings_that_differ_from_the_folder_are_refused() {
    let half = |life: f64| of("sclub-soft", &[("half-life", Literal::Number(life))]);
    let identity = new(&half(50.0)).unwrap();
    assert_eq!(identity.check(&half(50.0)), Ok(()));
    assert_eq!(identity.check(&of("sclub-soft", &[])), Ok(()));
    let why = identity.check(&half(60.0)).unwrap_err().0;
    let start = "half-life is 60, and the folder was made with 50;";
    assert!(why.starts_with(start), "{why}");
    let why = identity.check(&of("sclub", &[])).unwrap_err().0;
    let start = "policy is sclub, and the folder was made with sclub-soft;";
    assert!(why.starts_with(start), "{why}");
    let without = new(&of("sclub-soft", &[])).unwrap();
    let why = without.check(&half(60.0)).unwrap_err().0;
    assert!(why.contains("made with none"), "{why}");
    // A constant as text, as from a command line.
    let text = [("half-life", Literal::Text("50".to_owned()))];
    assert_eq!(identity.check(&of("sclub-soft", &text)), Ok(()));
}

#[test]
fn the_seed_is_the_folders() {
    let (one, other) = (
        new(&of("sclub", &[])).unwrap(),
        new(&of("sclub", &[])).unwrap(),
    );
    assert_ne!(one.seed(), other.seed());
    assert_eq!(Identity::decode(&one.encode()).unwrap().seed(), one.seed());
}

#[test]
fn constants_that_cannot_be_served_make_no_folder() {
    let all = Literal::Text("all".to_owned());
    let error = new(&of("sclub", &[("deviations", all)])).unwrap_err();
    assert!(error.to_string().contains("cannot be saved"), "{error}");
}
