//! Metrics of the process and of the disk, which no space has of its own.

use std::path::Path;

use super::metric;

/// Opens the files with the figures of the process, which stay open: a process that has no files left must still tell it.
pub fn open_process_files() {
    #[cfg(target_os = "linux")]
    linux::files();
}

/// The version, the process and the disk of a data folder, in Prometheus' text format. A value that the system does not tell is
/// left out.
pub fn process_metrics(data: &Path) -> String {
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    let help = "1; the label has the version of the server";
    let mut text = metric("sclub_build_info", "gauge", help, [(version, 1.0)]);
    #[cfg(target_os = "linux")]
    for (name, kind, help, value) in linux::disk(data).into_iter().chain(linux::process()) {
        text += &metric(name, kind, help, [(String::new(), value)]);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = data;
    text
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::{Mutex, OnceLock};
    use std::time::{SystemTime, UNIX_EPOCH};

    use rustix::fs::Dir;

    use crate::locks::lock;

    /// The name, type, help and value of a metric.
    type Row = (&'static str, &'static str, &'static str, f64);

    /// The disk of a folder, or of the nearest folder above it that exists.
    pub fn disk(data: &Path) -> Vec<Row> {
        let mut found = data
            .ancestors()
            .map(|path| match path.as_os_str().is_empty() {
                true => rustix::fs::statvfs("."),
                false => rustix::fs::statvfs(path),
            });
        let Some(Ok(disk)) = found.find(Result::is_ok) else {
            return Vec::new();
        };
        let bytes = |blocks: u64| blocks as f64 * disk.f_frsize as f64;
        let (free, size) = (bytes(disk.f_bavail), bytes(disk.f_blocks));
        vec![
            (
                "sclub_disk_free_bytes",
                "gauge",
                "Free bytes on the disk of the data folder",
                free,
            ),
            (
                "sclub_disk_size_bytes",
                "gauge",
                "Size of the disk of the data folder",
                size,
            ),
        ]
    }

    /// The files with the figures of the process. One that the system does not have is `None`.
    pub struct Files {
        stat: Option<File>,
        open: Option<Mutex<Dir>>,
    }

    /// The files, open since the first call.
    pub fn files() -> &'static Files {
        static FILES: OnceLock<Files> = OnceLock::new();
        FILES.get_or_init(|| {
            let open = File::open("/proc/self/fd").ok();
            let open = open.and_then(|folder| Dir::new(folder).ok());
            Files {
                stat: File::open("/proc/self/stat").ok(),
                open: open.map(Mutex::new),
            }
        })
    }

    impl Files {
        /// The times and sizes of the process, as the system tells them at present.
        fn stat(&self) -> String {
            // Its fields are a name of at most 64 bytes and some fifty numbers.
            let mut room = [0; 4096];
            let read = self.stat.as_ref().map(|file| file.read_at(&mut room, 0));
            let length = read.and_then(Result::ok).unwrap_or(0);
            String::from_utf8_lossy(&room[..length]).into_owned()
        }

        /// The number of open files.
        fn open(&self) -> Option<f64> {
            let mut open = lock(self.open.as_ref()?);
            open.rewind();
            let mut count = 0;
            while let Some(entry) = open.read() {
                count += u32::from(!entry.ok()?.file_name().to_bytes().starts_with(b"."));
            }
            Some(f64::from(count))
        }
    }

    /// The usual metrics of a process, by their usual names.
    pub fn process() -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |name, kind, help, value: Option<f64>| {
            rows.extend(value.map(|value| (name, kind, help, value)));
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        // The name of the program, in parentheses, may have spaces.
        let stat = files().stat();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        // The third field of the file is the first one here.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let cpu = field(14)
            .zip(field(15))
            .map(|(user, system)| (user + system) / ticks);
        row(
            "process_cpu_seconds_total",
            "counter",
            "CPU time of the process",
            cpu,
        );
        let memory = field(24).map(|pages| pages * rustix::param::page_size() as f64);
        row(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of the process",
            memory,
        );
        row(
            "process_start_time_seconds",
            "gauge",
            "Start of the process, in seconds since 1970",
            started(field(22).map(|since| since / ticks)),
        );
        row(
            "process_open_fds",
            "gauge",
            "Open files of the process",
            files().open(),
        );
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        row(
            "process_max_fds",
            "gauge",
            "Maximum number of open files",
            limit.current.map(|max| max as f64),
        );
        rows
    }

    /// The start of the process in seconds since 1970, given in seconds since the system was booted.
    ///
    /// By clocks, because a service may not see `/proc/stat`. Once, because a clock that is set would look like a restart.
    fn started(since_boot: Option<f64>) -> Option<f64> {
        static STARTED: OnceLock<Option<f64>> = OnceLock::new();
        *STARTED.get_or_init(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
            let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            let uptime = uptime.tv_sec as f64 + uptime.tv_nsec as f64 / 1e9;
            Some(now.as_secs_f64() - uptime + since_boot?)
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The value of a metric at present.
    fn value(name: &str) -> f64 {
        let text = process_metrics(Path::new("/"));
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap().trim().parse().unwrap()
    }

    #[test]
    fn figures_of_the_process_are_those_of_the_moment() {
        let before = value("process_open_fds ");
        // Other tests open files, too.
        let many: Vec<_> = (0..500)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        assert!(value("process_open_fds ") >= before + 300.0);
        drop(many);
        assert!(value("process_open_fds ") < before + 300.0);
        let used = value("process_cpu_seconds_total ");
        while value("process_cpu_seconds_total ") <= used {}
        assert!(value("process_resident_memory_bytes ") > 1e6);
    }
}
