//! What a service of systemd does: it tells when it is ready, and gives lines of the log their priority.

use std::io::{self, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Tells systemd that requests are answered, if this is a service of `Type=notify`.
#[cfg(target_os = "linux")]
pub fn tell_ready() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&socket),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = sent {
        let socket = socket.display();
        print_error(&format!(
            "cannot tell systemd at {socket} that the server is ready: {error}"
        ));
    }
}

#[cfg(not(target_os = "linux"))]
pub fn tell_ready() {}

/// Prints an error, with its priority if the journal reads it.
pub fn print_error(error: &str) {
    let priority = match LogWriter::new().is_journal {
        true => "<3>",
        false => "",
    };
    // In the journal each line is an entry.
    for line in format!("sclub: {error}").lines() {
        eprintln!("{priority}{line}");
    }
}

/// Writes lines of the log to the standard error stream, with their priority if the journal reads it.
pub struct LogWriter {
    is_journal: bool,
}

impl LogWriter {
    pub fn new() -> Self {
        Self {
            is_journal: is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()),
        }
    }
}

/// Whether the standard error stream is the one that the variable names by device and inode. Programs that a service starts
/// inherit the variable, but may have another stream.
#[cfg(target_os = "linux")]
fn is_journal(stream: Option<&str>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self/fd/2")
        .map(|about| format!("{}:{}", about.dev(), about.ino()));
    stream.is_some_and(|stream| own.is_ok_and(|own| own == stream))
}

#[cfg(not(target_os = "linux"))]
fn is_journal(_: Option<&str>) -> bool {
    false
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { priority: None }
    }

    fn make_writer_for(&self, about: &Metadata<'_>) -> Line {
        let priority = match *about.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        Line {
            priority: self.is_journal.then_some(priority),
        }
    }
}

/// Writes one line, which the log passes as a whole.
pub struct Line {
    priority: Option<u8>,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // In one call, so that lines of several threads do not mix.
        match self.priority.take() {
            Some(priority) => {
                let whole = [format!("<{priority}>").as_bytes(), line].concat();
                io::stderr().write_all(&whole)?;
                Ok(line.len())
            }
            None => io::stderr().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
