//! Certificates for tests, and clients that speak TLS.

use super::PATIENCE;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long [`Secure::try_send`] waits for a server that takes nothing.
const MOMENT: Duration = Duration::from_millis(200);

/// A signer of the certificates of a test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A chain and its key, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
        Self { issuer: issuer.unwrap() }
    }

    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// What a client trusts that knows this authority alone.
    fn config(&self, own: Option<&Pair>, protocols: &[&str]) -> Arc<ClientConfig> {
        config(self.issuer.der().clone(), own, protocols)
    }

    /// A client that asks for `name` and offers `protocols`.
    pub(crate) fn connect(&self, address: SocketAddr, name: &str, protocols: &[&str]) -> Secure {
        Secure::connect(address, name, self.config(None, protocols))
    }

    /// The same with a certificate of its own.
    pub(crate) fn connect_as(&self, address: SocketAddr, own: &Pair) -> Secure {
        Secure::connect(address, "localhost", self.config(Some(own), &[]))
    }
}

/// Trust in the one certificate of a file.
pub(crate) fn connect_trusting(file: &Path, address: SocketAddr, protocols: &[&str]) -> Secure {
    let root = CertificateDer::from_pem_file(file).unwrap();
    Secure::connect(address, "localhost", config(root, None, protocols))
}

fn config(
    root: CertificateDer<'static>,
    own: Option<&Pair>,
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(Pair { cert, key }) => {
            let chain = CertificateDer::pem_slice_iter(cert.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// What a client sends first: it can be sent again and again.
pub(crate) fn first_flight() -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Authority::new().config(None, &[]), name).unwrap();
    let mut flight = Vec::new();
    client.write_tls(&mut flight).unwrap();
    flight
}

impl Pair {
    /// Writes both files, with the mode that keys must have.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        for (file, text) in [(&key, &self.key), (&cert, &self.cert)] {
            // Beside its place first, as tools do that renew certificates.
            let draft = file.with_extension("new");
            fs::write(&draft, text).unwrap();
            set_mode(&draft, 0o600);
            fs::rename(&draft, file).unwrap();
        }
        (cert, key)
    }
}

pub(crate) fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// One connection with TLS.
#[derive(Debug)]
pub(crate) struct Secure {
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
}

impl Secure {
    fn connect(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tls = ClientConnection::new(config, name).unwrap();
        Self { stream: StreamOwned::new(tls, socket), input: Vec::new() }
    }

    /// Finishes the handshake; what rustls or the socket says if that fails.
    pub(crate) fn shake(&mut self) -> Result<(), String> {
        while self.stream.conn.is_handshaking() {
            self.stream.conn.complete_io(&mut self.stream.sock).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// The protocol that the server has chosen.
    pub(crate) fn protocol(&mut self) -> Option<String> {
        self.shake().unwrap();
        let protocol = self.stream.conn.alpn_protocol();
        protocol.map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// The first certificate of the server, as DER.
    pub(crate) fn certificate(&mut self) -> Vec<u8> {
        self.shake().unwrap();
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// Sends all of `bytes`, unless the server takes nothing for a moment or has ended the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        let _ = self.stream.sock.set_write_timeout(Some(MOMENT));
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// As much as one read brings; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.stream.read(buffer).unwrap_or(0)
    }

    /// Sends a request of HTTP/1.1 and takes its answer: head and body.
    pub(crate) fn ask(&mut self, request: &[u8]) -> (String, Vec<u8>) {
        self.send(request);
        let end = loop {
            if let Some(at) = memchr::memmem::find(&self.input, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill();
        };
        let head = String::from_utf8(self.input.drain(..end).collect()).unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("Content-Length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        let length = length.unwrap_or(0);
        while self.input.len() < length {
            self.fill();
        }
        (head, self.input.drain(..length).collect())
    }

    fn fill(&mut self) {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the answer ends in the middle");
        self.input.extend_from_slice(&buffer[..count]);
    }
}
