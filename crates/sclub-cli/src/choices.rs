//! Flags derived from the registry and the lab: policies, presets, constants, kinds of worlds.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches};
use sclub::{Constant, Preset, Range, Setup, Spec};
use sclub_lab::named::Named;
use sclub_lab::policies::Name;

/// Parses a value by its name; the help lists all names.
pub fn one_of<T: Named>() -> impl TypedValueParser<Value = T> {
    one_of_those(|_: &T| true)
}

/// As [`one_of`], for a command that does not support all values.
pub fn one_of_those<T: Named>(
    is_supported: impl Fn(&T) -> bool,
) -> impl TypedValueParser<Value = T> {
    let those = T::ALL.iter().filter(|(_, _, value)| is_supported(value));
    let those = those.map(|&(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(those).try_map(|name| T::named(&name))
}

/// Parses the presets that some policies have.
pub fn preset_of(policies: &[&Spec]) -> impl TypedValueParser<Value = Preset> + use<> {
    let all = Preset::ALL.into_iter().filter(|&preset| {
        // `default` stands for the only set of constants of a policy; it need not be given.
        preset != Preset::Default && policies.iter().any(|spec| spec.presets.contains(&preset))
    });
    let all = all.map(|preset| PossibleValue::new(preset.as_str()).help(preset.summary()));
    PossibleValuesParser::new(all).try_map(|name| name.parse::<Preset>())
}

/// Every policy of the lab.
pub fn policies() -> Vec<&'static Spec> {
    Name::all().into_iter().map(Name::spec).collect()
}

/// Each policy with its summary, a line each, below a sentence.
pub fn policies_help(sentence: &str) -> String {
    let all = policies();
    let width = all.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
    let lines = all.iter().map(|spec| {
        let Spec { name, summary, .. } = spec;
        format!("\n  {name:width$}  {summary}")
    });
    format!("{sentence}\n{}", lines.collect::<String>())
}

/// Every constant of some policies, each name once, with the policies that have it.
fn constants<'a>(policies: &[&'a Spec]) -> Vec<(&'static Constant, Vec<&'a Spec>)> {
    let mut all: Vec<(&Constant, Vec<&Spec>)> = Vec::new();
    for &spec in policies {
        for constant in spec.constants {
            let known = all
                .iter_mut()
                .find(|(known, _)| known.name == constant.name);
            match known {
                Some((_, owners)) => owners.push(spec),
                None => all.push((constant, vec![spec])),
            }
        }
    }
    all
}

/// The id of a constant's argument, different from all other ids.
pub fn id(constant: &str) -> String {
    format!("constant-{constant}")
}

/// The flag of a constant, without its name.
fn flag(constant: &'static Constant, owners: &[&Spec]) -> Arg {
    let names: Vec<&str> = owners.iter().map(|spec| spec.name).collect();
    let mut help = format!("{} [of {}]", constant.meaning, names.join(", "));
    if let Range::AnyOf(known) = constant.range {
        help.push_str(&format!(" [possible names: {}]", known.join(", ")));
    }
    // If there are several presets, the default depends on the preset.
    if let [only] = owners[0].presets
        && let Ok(value) = (constant.default)(*only, &Setup::new(1))
        && let value = constant.format(value)
        && !value.is_empty()
    {
        help.push_str(&format!(" [default: {value}]"));
    }
    let value_name = match constant.range {
        Range::Number { whole: true, .. } => "N".to_owned(),
        Range::Number { .. } => "X".to_owned(),
        Range::Flag => "true|false".to_owned(),
        Range::OneOf(known) => known.join("|"),
        Range::AnyOf(_) => "LIST".to_owned(),
    };
    Arg::new(id(constant.name))
        .value_name(value_name)
        .help(help)
        .allow_negative_numbers(true)
        .hide_short_help(constant.advanced)
}

/// The name that a constant has where words are joined by `-`.
pub fn dashed(constant: &str) -> String {
    constant.replace('_', "-")
}

/// The flag of `sclub run` for a constant, without the dashes.
pub fn run_flag(constant: &str) -> Option<String> {
    let command = crate::args::RunArgs::command();
    let flag = command
        .get_arguments()
        .find(|arg| *arg.get_id() == *id(constant))?;
    flag.get_long().map(str::to_owned)
}

/// The constants that were given to some policies: name and text.
fn given(matches: &ArgMatches, policies: &[&Spec]) -> Vec<(String, String)> {
    let all = constants(policies).into_iter();
    all.filter_map(|(constant, _)| {
        let text = matches.get_one::<String>(&id(constant.name))?;
        Some((constant.name.to_owned(), text.clone()))
    })
    .collect()
}

/// A flag for each constant of the lab's policies. Must come after all other flags of a command: where
/// one of them has a constant's name, the constant's flag begins with `--constant-`.
#[derive(Debug, Clone, Default)]
pub struct ConstantArgs {
    /// Name and text of those that were given.
    pub given: Vec<(String, String)>,
}

impl Args for ConstantArgs {
    fn augment_args(mut command: Command) -> Command {
        for (constant, owners) in constants(&policies()) {
            let mut long = dashed(constant.name);
            let is_taken = |arg: &Arg| arg.get_long() == Some(&*long);
            if ["help", "version"].contains(&&*long) || command.get_arguments().any(is_taken) {
                long = format!("constant-{long}");
            }
            let flag = flag(constant, &owners).long(long).help_heading("Policies");
            command = command.arg(flag);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConstantArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = given(matches, &policies());
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A flag and an environment variable for each constant of the policies that can be served.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServedConstantArgs {
    /// Name and text of those that were given.
    pub given: Vec<(String, String)>,
}

impl ServedConstantArgs {
    /// Tells whether a constant was given.
    pub fn has(&self, constant: &str) -> bool {
        self.given.iter().any(|(name, _)| name == constant)
    }
}

impl Args for ServedConstantArgs {
    fn augment_args(mut command: Command) -> Command {
        for (constant, owners) in constants(&sclub_server::identity::servable()) {
            let long = dashed(constant.name);
            let variable = format!("SCLUB_{}", constant.name.to_uppercase());
            let flag = flag(constant, &owners).long(long).env(variable);
            command = command.arg(flag.help_heading("Learning"));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServedConstantArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = given(matches, &sclub_server::identity::servable());
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
