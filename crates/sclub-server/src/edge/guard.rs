//! Who is let through, and how often.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use tower::{Layer, Service};

use super::audit::{Audit, Call};
use super::error::ApiError;
use super::keys::{Keys, Role};
use super::serve::{Peer, request_id};

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
    held: RwLock<Held>,
    /// Whether a key is asked for. Stays as it was at the start: the routes were built for it.
    asks: bool,
    rates: Option<Rates>,
    audit: Option<Audit>,
}

/// The keys in force, and a bucket for each.
struct Held {
    keys: Keys,
    buckets: Vec<Bucket>,
}

/// When a bucket is full again, as in [`Rates`].
type Bucket = Arc<AtomicU64>;

/// A request that is not let through, and whose key it had.
struct Denied {
    name: Option<Arc<str>>,
    error: ApiError,
}

impl From<ApiError> for Denied {
    fn from(error: ApiError) -> Self {
        Self { name: None, error }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Guard")
            .field("keys", &held.keys)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that lets each key, or each address without keys, make `rate` requests a second, and
    /// that many at once; 0 is no limit. Addresses are those of the connections: behind a proxy that
    /// is the proxy's.
    pub fn new(keys: Keys, rate: u32) -> Self {
        Self::with_audit(keys, rate, None)
    }

    /// As [`Guard::new`], and calls of routes that need the role [`Role::Admin`] are recorded.
    pub fn with_audit(keys: Keys, rate: u32, audit: Option<Audit>) -> Self {
        let buckets = keys.names().map(|_| Bucket::default()).collect();
        Self(Arc::new(Inner {
            asks: !keys.is_none(),
            held: RwLock::new(Held { keys, buckets }),
            rates: (rate > 0).then(|| Rates::new(rate)),
            audit,
        }))
    }

    /// Puts other keys in force. A key that keeps its name keeps its rate, also with another secret.
    ///
    /// # Errors
    /// A sentence, if there were keys and would be none, or the other way round.
    pub fn replace_keys(&self, keys: Keys) -> Result<(), String> {
        if keys.is_none() == self.0.asks {
            return Err("whether keys are needed can only be changed by a restart".to_owned());
        }
        let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
        let bucket = |name: &Arc<str>| {
            let before = held.keys.names().position(|other| other == name);
            before.map_or_else(Bucket::default, |at| Arc::clone(&held.buckets[at]))
        };
        let buckets = keys.names().map(bucket).collect();
        *held = Held { keys, buckets };
        Ok(())
    }

    /// Puts the routes of a router behind the guard. Where there is nothing to guard, the router stays
    /// as it is, and requests pay nothing.
    pub fn protect<S>(&self, role: Role, router: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        let is_idle = !self.0.asks && self.0.rates.is_none() && self.audit(role).is_none();
        match is_idle {
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

    /// Who records calls of routes that need a role.
    fn audit(&self, role: Role) -> Option<&Audit> {
        self.0.audit.as_ref().filter(|_| role == Role::Admin)
    }

    /// The record of a call, if it is to be recorded.
    fn call(&self, role: Role, request: &Request) -> Option<Call> {
        let audit = self.audit(role)?;
        let extensions = request.extensions();
        let route = extensions.get::<MatchedPath>();
        Some(Call::new(
            audit,
            Peer::of(extensions).0,
            request_id(extensions),
            request.method(),
            route.map_or("-", MatchedPath::as_str),
        ))
    }

    /// Lets a request through, with its [`Caller`], or not.
    fn admit(&self, role: Role, request: &mut Request) -> Result<(), Denied> {
        let rates = &self.0.rates;
        let by_address = |request: &Request| match rates {
            Some(rates) => rates.take_address(Peer::of(request.extensions()).0.ip()),
            None => Ok(()),
        };
        if !self.0.asks {
            return Ok(by_address(request)?);
        }
        let Some(secret) = secret(request.headers()) else {
            by_address(request)?;
            let message = "a key is needed, in the header Authorization: Bearer KEY";
            return Err(ApiError::unauthorized(message).into());
        };
        let caller = {
            let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
            match held.keys.find(secret) {
                None => None,
                Some(key) => {
                    let name = Some(Arc::clone(key.name));
                    if let Some(rates) = rates
                        && let Err(error) = rates.take_key(&held.buckets[key.index])
                    {
                        return Err(Denied { name, error });
                    }
                    let role = key.role;
                    Some(Caller { name, role })
                }
            }
        };
        let Some(caller) = caller else {
            by_address(request)?;
            return Err(ApiError::unauthorized("the key is not known").into());
        };
        if caller.role < role {
            let has = caller.role;
            return Err(Denied {
                name: caller.name,
                error: ApiError::forbidden(format!("the key may {has}, this needs {role}")),
            });
        }
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
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<
        Either<S::Future, Ready<Result<Response, S::Error>>>,
        BoxFuture<'static, Result<Response, S::Error>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let Require { guard, role } = &self.require;
        let call = guard.call(*role, &request);
        let denied = guard.admit(*role, &mut request).err();
        match (call, denied) {
            (None, None) => Either::Left(Either::Left(self.inner.call(request))),
            (None, Some(denied)) => {
                Either::Left(Either::Right(ready(Ok(denied.error.into_response()))))
            }
            (Some(mut call), Some(denied)) => {
                call.by(denied.name);
                call.answered(denied.error.status);
                Either::Left(Either::Right(ready(Ok(denied.error.into_response()))))
            }
            (Some(mut call), None) => {
                let caller = request.extensions().get::<Caller>();
                call.by(caller.and_then(|caller| caller.name.clone()));
                let answer = self.inner.call(request).map(|answer| {
                    if let Ok(answer) = &answer {
                        call.answered(answer.status());
                    }
                    answer
                });
                Either::Right(answer.boxed())
            }
        }
    }
}

/// Buckets of tokens, each kept as the time at which it would be full again: nanoseconds since `origin`.
struct Rates {
    origin: Instant,
    /// Nanoseconds for a token to come.
    step: u64,
    rate: u32,
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
    fn new(rate: u32) -> Self {
        Self {
            origin: Instant::now(),
            step: (SECOND / u64::from(rate)).max(1),
            rate,
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

    fn take_key(&self, bucket: &AtomicU64) -> Result<(), ApiError> {
        self.take_shared(bucket, self.now())
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
pub(super) fn client(address: IpAddr) -> IpAddr {
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
        let rates = Rates::new(10);
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
        let (rates, bucket) = (Rates::new(1), Bucket::default());
        assert_eq!(rates.take_shared(&bucket, SECOND), Ok(()));
        let error = rates.take_shared(&bucket, SECOND + 1).unwrap_err();
        assert_eq!(error.retry_after, Some(1));
        assert_eq!(rates.take_shared(&bucket, 2 * SECOND), Ok(()));
    }

    #[test]
    fn a_key_that_stays_keeps_its_rate() {
        let keys = |list: &str| Keys::from_list(list).unwrap();
        let guard = Guard::new(keys("read:a:aaaaaaaaaaaaaaaa,read:b:bbbbbbbbbbbbbbbb"), 2);
        let passed = |secret: &'static str| {
            let ask = || {
                let mut request = Request::new(axum::body::Body::empty());
                request
                    .headers_mut()
                    .insert(API_KEY, axum::http::HeaderValue::from_static(secret));
                guard.admit(Role::Read, &mut request).is_ok()
            };
            (0..5).filter(|_| ask()).count()
        };
        assert_eq!(passed("bbbbbbbbbbbbbbbb"), 2);
        // Another place, and another secret.
        guard
            .replace_keys(keys("read:b:BBBBBBBBBBBBBBBB,read:c:cccccccccccccccc"))
            .unwrap();
        assert_eq!(passed("BBBBBBBBBBBBBBBB"), 0);
        assert_eq!(passed("bbbbbbbbbbbbbbbb"), 0, "it is no key any more");
        assert_eq!(passed("aaaaaaaaaaaaaaaa"), 0, "it is no key any more");
        assert_eq!(passed("cccccccccccccccc"), 2);
        assert!(guard.replace_keys(Keys::none()).is_err());
        assert!(
            Guard::new(Keys::none(), 0)
                .replace_keys(keys("read:a:aaaaaaaaaaaaaaaa"))
                .is_err()
        );
    }

    #[test]
    fn many_addresses_take_bounded_room() {
        let rates = Rates::new(100);
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
