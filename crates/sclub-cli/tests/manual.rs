//! Manual pages and completions.

use std::process::Command;

fn sclub() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sclub"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let made = sclub()
        .args(["man", "--dir"])
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(made.success());
    let help = text(&sclub().arg("--help").output().unwrap().stdout);
    let commands = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.starts_with("Options"))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned());
    let commands: Vec<String> = commands.filter(|name| name != "help").collect();
    assert!(commands.len() > 15, "{help}");
    for name in commands {
        let page = folder.path().join(format!("sclub-{name}.1"));
        assert!(page.is_file(), "{}", page.display());
    }
    let page = std::fs::read_to_string(folder.path().join("sclub-serve.1")).unwrap();
    assert!(page.contains("SCLUB_MAX_K"), "{page}");
    let printed = sclub().arg("man").output().unwrap().stdout;
    assert_eq!(
        printed,
        std::fs::read(folder.path().join("sclub.1")).unwrap()
    );
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = sclub().args(["completions", "bash"]).output().unwrap();
    assert!(script.status.success());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sclub");
    std::fs::write(&file, script.stdout).unwrap();
    let complete = |words: &str, last: usize| {
        let program = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; _sclub sclub \"${{COMP_WORDS[{last}]}}\" \"\"; \
             echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = Command::new("bash").args(["-c", &program]).output();
        text(&output.unwrap().stdout).trim().to_owned()
    };
    assert_eq!(complete("sclub bac", 1), "backup");
    assert_eq!(complete("sclub serve --max-ca", 2), "--max-candidates");
}
