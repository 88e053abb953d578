//! Look-ups that wait for a lock do not delay other requests.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sclub_server::api::{App, router};
use sclub_server::edge::{self, EdgeOptions, Guard, Keys};
use sclub_server::engine::Engine;
use sclub_server::env::Env;
use sclub_server::settings::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

/// More look-ups than there are blocking threads.
const LOOK_UPS: usize = 60;
const THREADS: usize = 24;

/// Sends a request; its answer is read by [`status`].
async fn send(addr: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn status(mut stream: TcpStream) -> u16 {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let head = std::str::from_utf8(&answer[..12]).unwrap();
    head[9..].parse().unwrap()
}

fn app(folder: &Path) -> Arc<App> {
    let settings = Settings {
        dim: Some(2),
        journal_days: 0,
        ..Settings::default()
    };
    let engine = Engine::open(Env::real(), folder, &settings).unwrap();
    let app = App::new(settings);
    app.begin(engine);
    app
}

#[test]
fn look_ups_that_wait_do_not_delay_other_requests() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let app = app(folder.path());
    // One long read of the state.
    let (begun, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let slow = {
        let app = Arc::clone(&app);
        std::thread::spawn(move || {
            app.engine().unwrap().read_long(|_| {
                begun.send(()).unwrap();
                let _ = ends.recv_timeout(2 * LONG);
            });
        })
    };
    has_begun.recv().unwrap();

    runtime.block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router(app, &Guard::new(Keys::none(), 0));
        let serving = tokio::spawn(edge::serve(
            listener,
            router,
            EdgeOptions::default(),
            async { drop(stopped.await) },
        ));
        let mut waiting = Vec::new();
        for path in ["/v1/clusters", "/v1/state?hash=true", "/v1/clusters/1"] {
            for _ in 0..LOOK_UPS {
                waiting.push(send(addr, path).await);
            }
        }
        // Time for all of them to arrive. A late one makes the test weaker, but never fail.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for path in ["/healthz", "/readyz", "/v1/state", "/healthz"] {
            let answered = timeout(LONG, async { status(send(addr, path).await).await });
            let answered = answered.await;
            if answered.is_err() {
                drop(end);
                panic!("{path} waits for the others");
            }
            assert_eq!(answered, Ok(200), "{path}");
        }
        // Disconnected clients free their permits once their work is done, and all others are answered.
        waiting.drain(..LOOK_UPS / 2);
        end.send(()).unwrap();
        for stream in waiting {
            let status = timeout(LONG, status(stream)).await.expect("an answer");
            assert!(status == 200 || status == 404, "{status}");
        }
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
    });
    slow.join().unwrap();
}
