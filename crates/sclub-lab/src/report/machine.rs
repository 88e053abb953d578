//! The name and the cores of this machine.

use std::fs;

/// Facts about this machine for a report: (name, value).
pub fn facts(threads: usize) -> Vec<(String, String)> {
    let mut facts = vec![(
        "system".into(),
        format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
    )];
    if let Some(name) = field("/proc/cpuinfo", "model name") {
        facts.push(("processor".into(), name));
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    facts.push(("cores".into(), format!("{cores}, of which {threads} used")));
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    if let Some(kilobytes) = memory {
        facts.push(("memory".into(), format!("{:.0} GiB", kilobytes / 1048576.0)));
    }
    facts
}

/// The first line `name : value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    })?;
    (!value.is_empty()).then_some(value)
}
