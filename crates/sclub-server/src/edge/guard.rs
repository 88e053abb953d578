//! Authorization by API keys, and rate limits.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use crate::locks::{lock, read, write};

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
use super::keys::{Keys, Role, Scope};
use super::serve::{Peer, request_id};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const SECOND: u64 = 1_000_000_000;
const SHARDS: usize = 16;
/// The maximum number of addresses with a bucket of their own, for each shard.
const MAX_ADDRESSES: usize = 4096;

/// The caller of a request. An extractor. Without keys, every caller has all rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the key; `None` if the server has no keys.
    pub name: Option<Arc<str>>,
    /// The caller's role.
    pub role: Role,
    /// The spaces that the caller may use.
    pub scope: Scope,
}

impl Caller {
    /// The caller of a server without keys.
    fn anyone() -> Self {
        Self {
            name: None,
            role: Role::Admin,
            scope: Scope::All,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Self>().cloned();
        Ok(caller.unwrap_or_else(Self::anyone))
    }
}

/// Checks API keys, and limits the rate of each.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    held: RwLock<KeyTable>,
    /// True if a key is required. It cannot change: the routes were built for it.
    asks: bool,
    rates: Option<Rates>,
    audit: Option<Audit>,
    /// The space whose calls it guards, for the audit log.
    space: Option<Arc<str>>,
    /// The guards of spaces, which have some of these keys.
    spaces: Mutex<Vec<Weak<Inner>>>,
}

/// The keys in use, and a bucket for each.
struct KeyTable {
    keys: Keys,
    buckets: Vec<Bucket>,
}

/// The time at which a bucket is full again, as in [`Rates`].
type Bucket = Arc<AtomicU64>;

/// Called with each request that a guard refuses.
pub type OnRefusal = Arc<dyn Fn(&Request) + Send + Sync>;

/// A refused request, and the name of its key.
#[derive(Debug)]
pub(crate) struct Denied {
    pub name: Option<Arc<str>>,
    pub error: ApiError,
}

impl From<ApiError> for Denied {
    fn from(error: ApiError) -> Self {
        Self { name: None, error }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = read(&self.0.held);
        f.debug_struct("Guard")
            .field("keys", &held.keys)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that limits each key, or each address without keys, to `rate` requests a second, with bursts
    /// of as many; 0 is no limit. Addresses are those of the connections: behind a proxy that is the
    /// proxy's.
    pub fn new(keys: Keys, rate: u32) -> Self {
        Self::with_audit(keys, rate, None)
    }

    /// Like [`Guard::new`], and records calls of routes that need the role [`Role::Admin`].
    pub fn with_audit(keys: Keys, rate: u32, audit: Option<Audit>) -> Self {
        Self::build(keys, rate, audit, None)
    }

    /// The guard of a space: with those of these keys that open it, and with a rate of its own. It follows
    /// [`Guard::replace_keys`].
    pub fn of_space(&self, space: &str, rate: u32) -> Self {
        let mut spaces = lock(&self.0.spaces);
        let keys = read(&self.0.held).keys.of_space(space);
        let guard = Self::build(keys, rate, self.0.audit.clone(), Some(space.into()));
        spaces.retain(|other| other.strong_count() > 0);
        spaces.push(Arc::downgrade(&guard.0));
        guard
    }

    fn build(keys: Keys, rate: u32, audit: Option<Audit>, space: Option<Arc<str>>) -> Self {
        let buckets = keys.names().map(|_| Bucket::default()).collect();
        Self(Arc::new(Inner {
            asks: !keys.is_none(),
            held: RwLock::new(KeyTable { keys, buckets }),
            rates: (rate > 0).then(|| Rates::new(rate)),
            audit,
            space,
            spaces: Mutex::default(),
        }))
    }

    /// Returns true if calls need a key.
    pub fn needs_key(&self) -> bool {
        self.0.asks
    }

    /// Replaces the keys. A key that keeps its name keeps its bucket, even with another secret.
    ///
    /// # Errors
    /// If there were keys and would be none, or the other way round.
    pub fn replace_keys(&self, keys: Keys) -> Result<(), String> {
        if keys.is_none() == self.0.asks {
            return Err(
                "API keys cannot be turned on or off while the server runs; restart it".to_owned(),
            );
        }
        let spaces = lock(&self.0.spaces);
        for guard in spaces.iter().filter_map(Weak::upgrade) {
            let space = guard.space.as_deref().unwrap_or_default();
            Self(Arc::clone(&guard)).replace_keys(keys.of_space(space))?;
        }
        let mut held = write(&self.0.held);
        let bucket = |name: &Arc<str>| {
            let before = held.keys.names().position(|other| other == name);
            before.map_or_else(Bucket::default, |at| Arc::clone(&held.buckets[at]))
        };
        let buckets = keys.names().map(bucket).collect();
        *held = KeyTable { keys, buckets };
        Ok(())
    }

    /// Puts the routes of a router behind the guard. Without keys, rate limit and audit log, the router is
    /// returned unchanged, at no cost for requests.
    pub fn protect<S>(&self, role: Role, router: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        self.protect_by(self.require(role), router)
    }

    /// Like [`Guard::protect`], for routes whose handlers count their requests: `refused` is called with those that do not
    /// reach them.
    pub fn protect_counted<S>(&self, role: Role, router: Router<S>, refused: OnRefusal) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        let require = Require {
            refused: Some(refused),
            ..self.require(role)
        };
        self.protect_by(require, router)
    }

    fn protect_by<S>(&self, require: Require, router: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        let is_audited = self.audit(require.role).is_some();
        let is_idle = !self.0.asks && self.0.rates.is_none() && !is_audited;
        match is_idle {
            true => router,
            false => router.route_layer(require),
        }
    }

    /// A layer for routes that need a role. For a whole router, use [`Guard::protect`].
    pub fn require(&self, role: Role) -> Require {
        Require {
            guard: self.clone(),
            role,
            refused: None,
        }
    }

    /// The audit log for routes that need a role.
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
            self.0.space.as_deref(),
        ))
    }

    /// The record of a call whose route and space are known, if there is an audit log.
    pub(crate) fn record(&self, request: &Request, route: &str, space: &str) -> Option<Call> {
        let audit = self.0.audit.as_ref()?;
        let extensions = request.extensions();
        let (peer, id) = (Peer::of(extensions).0, request_id(extensions));
        Some(Call::new(
            audit,
            peer,
            id,
            request.method(),
            route,
            Some(space),
        ))
    }

    /// The caller of a request. Takes nothing from the rate of its key: another guard does.
    ///
    /// # Errors
    /// 401 if the request has no known key, 429 after too many of these.
    pub(crate) fn identify(&self, request: &Request) -> Result<Caller, Denied> {
        match self.0.asks {
            true => self.find(request, |_, _| Ok(())),
            false => Ok(Caller::anyone()),
        }
    }

    /// Returns true if a request of a route that is open to everyone could call those that need a role.
    pub(crate) fn admits(&self, role: Role, request: &Request) -> bool {
        let has_key = || secret(request.headers()).is_some();
        !self.0.asks || (has_key() && self.check(role, request).is_ok())
    }

    /// Finds the caller of a request, and does something with the key's rate and name.
    fn find(
        &self,
        request: &Request,
        take: impl FnOnce(&Bucket, &Arc<str>) -> Result<(), Denied>,
    ) -> Result<Caller, Denied> {
        let Some(secret) = secret(request.headers()) else {
            self.take_address(request)?;
            let message = "an API key is required, in the header Authorization: Bearer KEY";
            return Err(ApiError::unauthorized(message).into());
        };
        {
            let held = read(&self.0.held);
            if let Some(key) = held.keys.find(secret) {
                take(&held.buckets[key.index], key.name)?;
                return Ok(Caller {
                    name: Some(Arc::clone(key.name)),
                    role: key.role,
                    scope: key.scope.clone(),
                });
            }
        }
        self.take_address(request)?;
        Err(ApiError::unauthorized("unknown API key").into())
    }

    fn take_address(&self, request: &Request) -> Result<(), ApiError> {
        match &self.0.rates {
            Some(rates) => rates.take_address(Peer::of(request.extensions()).0.ip()),
            None => Ok(()),
        }
    }

    /// Checks a request and adds its [`Caller`].
    fn admit(&self, role: Role, request: &mut Request) -> Result<(), Denied> {
        let caller = self.check(role, request)?;
        if self.0.asks {
            request.extensions_mut().insert(caller);
        }
        Ok(())
    }

    /// Checks a request.
    pub(crate) fn check(&self, role: Role, request: &Request) -> Result<Caller, Denied> {
        if !self.0.asks {
            self.take_address(request)?;
            return Ok(Caller::anyone());
        }
        let caller = self.find(request, |bucket, name| {
            let taken = self
                .0
                .rates
                .as_ref()
                .map_or(Ok(()), |rates| rates.take_key(bucket));
            taken.map_err(|error| Denied {
                name: Some(Arc::clone(name)),
                error,
            })
        })?;
        if caller.role < role {
            let has = caller.role;
            return Err(Denied {
                name: caller.name,
                error: ApiError::forbidden(format!(
                    "the key has the role {has}; this call needs {role}"
                )),
            });
        }
        Ok(caller)
    }
}

/// The secret in the headers of a request.
fn secret(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, secret) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret)
    });
    let secret = bearer.or_else(|| headers.get(API_KEY).map(|value| value.as_bytes()))?;
    Some(secret.trim_ascii())
}

/// The layer of [`Guard::require`].
#[derive(Clone)]
pub struct Require {
    guard: Guard,
    role: Role,
    refused: Option<OnRefusal>,
}

impl fmt::Debug for Require {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Require")
            .field("guard", &self.guard)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
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
        let Require {
            guard,
            role,
            refused,
        } = &self.require;
        let call = guard.call(*role, &request);
        let denied = guard.admit(*role, &mut request).err();
        if denied.is_some()
            && let Some(refused) = refused
        {
            refused(&request);
        }
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

/// Token buckets, each stored as the time at which it will be full again: nanoseconds since `origin`.
struct Rates {
    origin: Instant,
    /// The nanoseconds after which a bucket gets another token.
    step: u64,
    rate: u32,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// The common bucket of all addresses without one of their own.
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

    /// Takes a token. Returns the time at which the bucket is full again. A bucket has tokens for a second.
    fn take(&self, full_at: u64, now: u64) -> Result<u64, ApiError> {
        let next = full_at.max(now) + self.step;
        // A full bucket always has at least one token.
        let over = (next - now).saturating_sub(SECOND.max(self.step));
        if over == 0 {
            return Ok(next);
        }
        let message = format!("more than {} requests a second; retry later", self.rate);
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
        let mut shard = lock(shard);
        if let Some(full_at) = shard.full_at.get_mut(&client) {
            *full_at = self.take(*full_at, now)?;
            return Ok(());
        }
        if shard.full_at.len() >= MAX_ADDRESSES && now >= shard.swept_at.saturating_add(SECOND) {
            // A full bucket needs no entry.
            shard.full_at.retain(|_, full_at| *full_at > now);
            shard.swept_at = now;
        }
        if shard.full_at.len() >= MAX_ADDRESSES {
            drop(shard);
            return self.take_shared(&self.crowd, now);
        }
        let full_at = self.take(0, now)?;
        shard.full_at.insert(client, full_at);
        Ok(())
    }
}

/// The client of an address. With IPv6 this is the network of 64 bits: one client can use all of its
/// addresses.
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

    /// The number of `tries` at once that are admitted.
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
        assert_eq!(kept(&rates), SHARDS * MAX_ADDRESSES);
        // Those with a bucket of their own, and a second's worth from the common one.
        assert_eq!(passed, SHARDS * MAX_ADDRESSES + 100);
        // Buckets that are full by now are removed.
        assert_eq!(
            super::tests::passed(&rates, IpAddr::from([9, 9, 9, 9]), 9 * SECOND, 500),
            100
        );
        assert!(kept(&rates) <= (SHARDS - 1) * MAX_ADDRESSES + 1);
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
