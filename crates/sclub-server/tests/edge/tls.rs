//! TLS and its files.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sclub_server::edge::{Drained, EdgeOptions, Tls};
use sclub_server::settings::Settings;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Client, LONG, Running, plain, quick};

/// A certificate for `localhost` and its key, in files.
pub fn certificate(folder: &Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let cert = folder.join(format!("{name}.crt"));
    let key = folder.join(format!("{name}.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key, made.cert.der().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_tls_are_answered() {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};

    let folder = tempfile::tempdir().unwrap();
    let (cert, key, der) = certificate(folder.path(), "one");
    let tls = Some(Tls::load(&cert, &key).unwrap());
    let running = Running::new(plain(), EdgeOptions { tls, ..quick() });

    let mut roots = RootCertStore::empty();
    roots.add(der.into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(running.addr).await.unwrap();
    let name = pki_types::ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let mut client = Client::new(timeout(LONG, connecting).await.unwrap().unwrap());
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n")
        .await;
    client.send(vec![b'a'; 50_000]).await;
    let answer = client.answer().await;
    assert!(answer.status == 200 && answer.body == vec![b'a'; 50_000]);
    client
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.code(), "too_large");
    client.ended().await;

    // Clients without TLS, and silent ones, are disconnected.
    let mut wrong = running.client().await;
    wrong.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    wrong.ended().await;
    assert!(!wrong.read.starts_with(b"HTTP"));
    let mut silent = running.client().await;
    silent.ended().await;
    assert_eq!(running.stop().await, Drained { cut: 0 });
}

#[test]
fn tls_files_are_validated() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key, _) = certificate(folder.path(), "one");
    let (_, other, _) = certificate(folder.path(), "two");
    let missing = folder.path().join("missing");
    let text = folder.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    let torn = folder.path().join("torn");
    std::fs::write(&torn, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    let hollow = folder.path().join("hollow");
    let hollow_pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&hollow, hollow_pem).unwrap();

    let cases = [
        (&missing, &key, "the certificate", "missing: cannot be read"),
        (
            &cert,
            &missing,
            "the private key",
            "missing: cannot be read",
        ),
        (
            &text,
            &key,
            "the certificate",
            "text: the file has no certificate",
        ),
        (
            &cert,
            &text,
            "the private key",
            "text: the file has no private key",
        ),
        (&torn, &key, "the certificate", "torn: the file is damaged"),
        (&hollow, &key, "the certificate", "hollow is invalid"),
        (
            &cert,
            &cert,
            "the private key",
            "one.crt: the file has no private key",
        ),
        (
            &cert,
            &other,
            "the private key",
            "two.key does not belong to the certificate",
        ),
    ];
    for (cert, key, start, part) in cases {
        let error = Tls::load(cert, key).unwrap_err();
        assert!(
            error.starts_with(start) && error.contains(part),
            "{part}: {error}"
        );
    }

    let settings = |tls_cert, tls_key| Settings {
        tls_cert,
        tls_key,
        ..Settings::default()
    };
    let options = |cert: Option<&Path>, key: Option<&Path>| {
        EdgeOptions::from_settings(&settings(cert.map(Path::to_owned), key.map(Path::to_owned)))
    };
    assert!(options(Some(&cert), Some(&key)).unwrap().tls.is_some());
    assert!(options(None, None).unwrap().tls.is_none());
    assert_eq!(
        options(Some(&cert), None).unwrap_err(),
        "tls-cert is set without tls-key; set both or none"
    );
    assert_eq!(
        options(None, Some(&key)).unwrap_err(),
        "tls-key is set without tls-cert; set both or none"
    );
}

/// A client that trusts only this certificate, or the error of its handshake.
async fn over_tls(addr: SocketAddr, der: &[u8]) -> Result<Client<TlsClient>, std::io::Error> {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types};

    let mut roots = RootCertStore::empty();
    roots.add(der.to_vec().into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = pki_types::ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    Ok(Client::new(timeout(LONG, connecting).await.unwrap()?))
}

type TlsClient = tokio_rustls::client::TlsStream<TcpStream>;

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_can_be_replaced_without_closing_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key, old) = certificate(folder.path(), "one");
    let tls = Tls::load(&cert, &key).unwrap();
    let options = EdgeOptions {
        tls: Some(tls.clone()),
        ..EdgeOptions::default()
    };
    let running = Running::new(plain(), options);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut before = over_tls(running.addr, &old).await.unwrap();
    before.send(request).await;
    assert_eq!(before.answer().await.text(), "hello");

    // A key that is not the certificate's changes nothing.
    let (other_cert, other_key, new) = certificate(folder.path(), "two");
    assert!(tls.reload(&cert, &other_key).is_err());
    assert!(over_tls(running.addr, &old).await.is_ok());

    tls.reload(&other_cert, &other_key).unwrap();
    assert!(over_tls(running.addr, &old).await.is_err());
    let mut after = over_tls(running.addr, &new).await.unwrap();
    for client in [&mut before, &mut after] {
        client.send(request).await;
        assert_eq!(client.answer().await.text(), "hello");
    }
}
