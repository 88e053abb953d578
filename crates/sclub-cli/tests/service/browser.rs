//! A real Chromium, driven over a pipe.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// For anything that must happen soon.
const SOON: Duration = Duration::from_secs(60);

/// The name of a browser of the Chromium family, if there is one.
fn installed() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

/// A browser with one tab.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    last: u64,
    /// The events that the browser has sent.
    pub said: Vec<Value>,
}

impl Browser {
    /// Starts one, with its files in a folder. None where there is none, which CI does not accept.
    pub fn start(folder: &Path) -> Option<Self> {
        let Some(name) = installed() else {
            assert!(std::env::var_os("CI").is_none(), "CI has a browser");
            eprintln!("no Chromium here: the page is not looked at");
            return None;
        };
        let (to, from) = (folder.join("to"), folder.join("from"));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success());
        let script = format!(
            "exec {name} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe \
             --user-data-dir=\"$2\" --window-size=1280,1600 3<\"$0\" 4>\"$1\""
        );
        let child = Command::new("bash")
            .args(["-c", &script])
            .args([&to, &from, &folder.join("profile")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = OpenOptions::new().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let mut browser = Self {
            child,
            to,
            from,
            session: String::new(),
            last: 0,
            said: Vec::new(),
        };
        let tab = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": tab["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls the browser and waits for its answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.try_call(method, parameters);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// As [`Browser::call`]; the error is the browser's.
    fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        self.to.flush().unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser is gone");
            let mut message: Value = serde_json::from_slice(&bytes).unwrap();
            if message["id"] == self.last {
                return match message["error"].take() {
                    Value::Null => Ok(message["result"].take()),
                    error => Err(error),
                };
            }
            self.said.push(message);
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let value = self.try_value(expression);
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_value(&mut self, expression: &str) -> Result<Value, Value> {
        let result = self.try_call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        )?;
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {result}"
        );
        Ok(result["result"]["value"].clone())
    }

    /// The text of the first element that a selector finds, as it is seen.
    pub fn text(&mut self, of: &str) -> String {
        let text = self.value(&format!("document.querySelector('{of}').innerText"));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true in the page. The page may go to another one meanwhile, which is an error of the browser.
    pub fn wait_for(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.try_value(&format!("Boolean({expression})")) != Ok(json!(true)) {
            assert!(begun.elapsed() < SOON, "never: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens an address and waits until the page says that it is ready.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for("document.documentElement?.dataset.ready === '1'");
    }

    /// Makes the window so wide and high.
    pub fn resize(&mut self, width: u64, height: u64) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Errors of scripts, and what the console calls errors.
    pub fn errors(&self) -> Vec<String> {
        let is_error = |message: &&Value| match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => message["params"]["type"] == "error",
            Some("Log.entryAdded") => message["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.said
            .iter()
            .filter(is_error)
            .map(ToString::to_string)
            .collect()
    }

    /// Every address that was asked for.
    pub fn requests(&self) -> Vec<String> {
        self.said
            .iter()
            .filter(|message| message["method"] == "Network.requestWillBeSent")
            .filter_map(|message| message["params"]["request"]["url"].as_str())
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
