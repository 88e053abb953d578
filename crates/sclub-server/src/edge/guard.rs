//! Who is let through, and how often.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, Ready, ready};
use tower::{Layer, Service};

use super::error::ApiError;
use super::keys::{Keys, Role};
use super::serve::Peer;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const SECOND: u64 = 1_000_000_000;
const SHARDS: usize = 16;
/// Addresses that a shard keeps a bucket for.
const ADDRESSES: usize = 4096;

/// Who calls. An extractor: whoever it is has all rights where no keys are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the key; `None` where none was asked for.
    pub name: Option<Arc<str>>,
    /// What the caller may do.
    pub role: Role,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Self>().cloned();
        Ok(caller.unwrap_or(Self {
            name: None,
            role: Role::Admin,
        }))
    }
}

/// Asks for keys, and limits how often each is used.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    keys: Keys,
    rates: Option<Rates>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("keys", &self.0.keys)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that lets each key, or each address without keys, make `rate` requests a second, and
    /// that many at once; 0 is no limit. Addresses are those of the connections: behind a proxy that
    /// is the proxy's.
    pub fn new(keys: Keys, rate: u32) -> Self {
        let rates = (rate > 0).then(|| Rates::new(rate, keys.len()));
        Self(Arc::new(Inner { keys, rates }))
    }

    /// Puts the routes of a router behind the guard. Where there is nothing to guard, the router stays
    /// as it is, and requests pay nothing.
    pub fn protect<S>(&self, role: Role, router: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self.is_idle() {
            true => router,
            false => router.route_layer(self.require(role)),
        }
    }

    /// A layer for routes that need a role; [`Guard::protect`] is better for a whole router.
    pub fn require(&self, role: Role) -> Require {
        Require {
            guard: self.clone(),
            role,
        }
    }

    fn is_idle(&self) -> bool {
        self.0.keys.is_none() && self.0.rates.is_none()
    }

    /// Lets a request through, with its [`Caller`], or not.
    fn admit(&self, role: Role, request: &mut Request) -> Result<(), ApiError> {
        let Inner { keys, rates } = &*self.0;
        let by_address = |request: &Request| match rates {
            Some(rates) => rates.take_address(Peer::of(request.extensions()).0.ip()),
            None => Ok(()),
        };
        if keys.is_none() {
            return by_address(request);
        }
        let Some(secret) = secret(request.headers()) else {
            by_address(request)?;
            return Err(ApiError::unauthorized(
                "a key is needed, in the header Authorization: Bearer KEY",
            ));
        };
        let Some(key) = keys.find(secret) else {
            by_address(request)?;
            return Err(ApiError::unauthorized("the key is not known"));
        };
        if let Some(rates) = rates {
            rates.take_key(key.index)?;
        }
        if key.role < role {
            let has = key.role;
            return Err(ApiError::forbidden(format!(
                "the key may {has}, this needs {role}"
            )));
        }
        let caller = Caller {
            name: Some(Arc::clone(key.name)),
            role: key.role,
        };
        request.extensions_mut().insert(caller);
        Ok(())
    }
}

/// The secret that a request brings.
fn secret(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, secret) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret)
    });
    let secret = bearer.or_else(|| headers.get(API_KEY).map(|value| value.as_bytes()))?;
    Some(secret.trim_ascii())
}

/// The layer of [`Guard::require`].
#[derive(Debug, Clone)]
pub struct Require {
    guard: Guard,
    role: Role,
}

impl<S> Layer<S> for Require {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            require: self.clone(),
        }
    }
}

/// A service behind a [`Guard`].
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    inner: S,
    require: Require,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        match self.require.guard.admit(self.require.role, &mut request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(error) => Either::Right(ready(Ok(error.into_response()))),
        }
    }
}

/// Buckets of tokens, each kept as the time at which it would be full again: nanoseconds since `origin`.
struct Rates {
    origin: Instant,
    /// Nanoseconds for a token to come.
    step: u64,
    rate: u32,
    keys: Box<[AtomicU64]>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// For all addresses that find no room.
    crowd: AtomicU64,
}

#[derive(Default)]
struct Shard {
    full_at: HashMap<IpAddr, u64>,
    swept_at: u64,
}

impl Rates {
    fn new(rate: u32, keys: usize) -> Self {
        Self {
            origin: Instant::now(),
            step: (SECOND / u64::from(rate)).max(1),
            rate,
            keys: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            shards: Default::default(),
            crowd: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Takes a token: when the bucket is full again. A bucket holds a second's worth.
    fn take(&self, full_at: u64, now: u64) -> Result<u64, ApiError> {
        let next = full_at.max(now) + self.step;
        // One token may always be taken from a full bucket.
        let over = (next - now).saturating_sub(SECOND.max(self.step));
        if over == 0 {
            return Ok(next);
        }
        let message = format!("more than {} requests a second", self.rate);
        Err(ApiError::rate_limited(message, over.div_ceil(SECOND)))
    }

    fn take_shared(&self, bucket: &AtomicU64, now: u64) -> Result<(), ApiError> {
        let mut full_at = bucket.load(Relaxed);
        loop {
            let next = self.take(full_at, now)?;
            match bucket.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
    }

    fn take_key(&self, index: usize) -> Result<(), ApiError> {
        self.take_shared(&self.keys[index], self.now())
    }

    fn take_address(&self, address: IpAddr) -> Result<(), ApiError> {
        self.take_address_at(client(address), self.now())
    }

    fn take_address_at(&self, client: IpAddr, now: u64) -> Result<(), ApiError> {
        let shard = &self.shards[self.hasher.hash_one(client) as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full_at) = shard.full_at.get_mut(&client) {
            *full_at = self.take(*full_at, now)?;
            return Ok(());
        }
        if shard.full_at.len() >= ADDRESSES && now >= shard.swept_at.saturating_add(SECOND) {
            // A full bucket is as good as none.
            shard.full_at.retain(|_, full_at| *full_at > now);
            shard.swept_at = now;
        }
        if shard.full_at.len() >= ADDRESSES {
            drop(shard);
            return self.take_shared(&self.crowd, now);
        }
        let full_at = self.take(0, now)?;
        shard.full_at.insert(client, full_at);
        Ok(())
    }
}

/// Who is behind an address: with IPv6, whoever has the first half has all of the second.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `tries` at once are let through.
    fn passed(rates: &Rates, address: IpAddr, now: u64, tries: usize) -> usize {
        (0..tries)
            .filter(|_| rates.take_address_at(address, now).is_ok())
            .count()
    }

    #[test]
    fn a_bucket_holds_a_second_and_fills_in_one() {
        let rates = Rates::new(10, 0);
        let address = IpAddr::from([1, 2, 3, 4]);
        let start = 5 * SECOND;
        assert_eq!(passed(&rates, address, start, 50), 10);
        assert_eq!(passed(&rates, address, start + SECOND / 2, 50), 5);
        assert_eq!(passed(&rates, address, start + 10 * SECOND, 50), 10);
        assert_eq!(passed(&rates, IpAddr::from([1, 2, 3, 5]), start, 50), 10);
        let error = rates
            .take_address_at(address, start + 10 * SECOND)
            .unwrap_err();
        assert_eq!((error.code, error.retry_after), ("rate_limited", Some(1)));
    }

    #[test]
    fn one_a_second_is_one_a_second() {
        let rates = Rates::new(1, 1);
        assert_eq!(rates.take_shared(&rates.keys[0], SECOND), Ok(()));
        let error = rates.take_shared(&rates.keys[0], SECOND + 1).unwrap_err();
        assert_eq!(error.retry_after, Some(1));
        assert_eq!(rates.take_shared(&rates.keys[0], 2 * SECOND), Ok(()));
    }

    #[test]
    fn many_addresses_take_bounded_room() {
        let rates = Rates::new(100, 0);
        let kept = |rates: &Rates| -> usize {
            rates
                .shards
                .iter()
                .map(|shard| shard.lock().unwrap().full_at.len())
                .sum()
        };
        let mut passed = 0;
        for address in 0..200_000u32 {
            passed += usize::from(
                rates
                    .take_address_at(IpAddr::V4(address.into()), SECOND)
                    .is_ok(),
            );
        }
        assert_eq!(kept(&rates), SHARDS * ADDRESSES);
        // Each that has room, and a second's worth of the crowd.
        assert_eq!(passed, SHARDS * ADDRESSES + 100);
        // Buckets that are full by now make room.
        assert_eq!(
            super::tests::passed(&rates, IpAddr::from([9, 9, 9, 9]), 9 * SECOND, 500),
            100
        );
        assert!(kept(&rates) <= (SHARDS - 1) * ADDRESSES + 1);
    }

    #[test]
    fn half_an_ipv6_address_is_a_client() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(
            client(parse("2001:db8:1:2:3:4:5:6")),
            parse("2001:db8:1:2::")
        );
        assert_eq!(client(parse("::ffff:1.2.3.4")), parse("1.2.3.4"));
        assert_eq!(client(parse("1.2.3.4")), parse("1.2.3.4"));
    }

    #[test]
    fn keys_come_in_two_headers() {
        let with = |name: &str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
            secret(&headers).map(|secret| String::from_utf8(secret.to_vec()).unwrap())
        };
        assert_eq!(with("authorization", "Bearer abc").as_deref(), Some("abc"));
        assert_eq!(
            with("authorization", "bEARER  abc ").as_deref(),
            Some("abc")
        );
        assert_eq!(with("x-api-key", "abc").as_deref(), Some("abc"));
        assert_eq!(with("authorization", "Basic abc"), None);
        assert_eq!(with("authorization", "Bearer"), None);
        assert_eq!(with("cookie", "abc"), None);
    }
}
