//! OpenTelemetry traces: requests, commits, fits and snapshots.
//!
//! Without [`Settings::otel_endpoint`] no span is made, and a request costs one comparison. With it, a thread of its own exports
//! the spans that were sampled from a bounded queue. Spans that do not fit are dropped, so a collector that does not answer
//! neither delays nor stops the server.
//!
//! Spans never have ids of users or items.

mod count;
mod export;
mod nodes;

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Response};
use opentelemetry::context::FutureExt;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, TraceId, Tracer as _,
    TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    Sampler, SamplingResult, SdkTracer, SdkTracerProvider, ShouldSample,
};

pub use self::count::span_metrics;
use self::export::Client;
pub use self::nodes::{SentCaller, forward, sent_callers};
use crate::edge::error::ErrorCode;
use crate::settings::Settings;

/// The tracer of this process; unset if traces are off.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The path of an OTLP endpoint.
const TRACES_PATH: &str = "/v1/traces";
/// The maximum time that a shutdown waits for the last spans to be exported.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The export of traces of this process.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export for a server at an address, if the settings have an endpoint.
    ///
    /// # Errors
    /// If the endpoint is invalid, or this process exports traces already.
    pub fn start(settings: &Settings, addr: SocketAddr) -> Result<Option<Self>, String> {
        let Some(endpoint) = &settings.otel_endpoint else {
            return Ok(None);
        };
        let refused = |why: &dyn std::fmt::Display| format!("otel-endpoint '{endpoint}': {why}");
        let url = endpoint.trim_end_matches('/');
        let url = url.strip_suffix(TRACES_PATH).unwrap_or(url);
        let client = Client::new(url).map_err(|error| refused(&error))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(format!("{url}{TRACES_PATH}"))
            .build()
            .map_err(|error| refused(&error))?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(count::Counted::new(exporter))
            .with_sampler(Sampling::new(settings.otel_sample_ratio))
            .with_resource(resource(settings, addr))
            .build();
        if TRACER.set(provider.tracer("sclub")).is_err() {
            return Err("otel-endpoint: this process exports traces already".to_owned());
        }
        let ratio = settings.otel_sample_ratio;
        tracing::info!(endpoint, ratio, "traces are exported");
        Ok(Some(Self(provider)))
    }

    /// Exports the last spans, for three seconds at most.
    pub fn close(self) {
        if let Err(error) = self.0.shutdown_with_timeout(CLOSE_TIMEOUT) {
            tracing::warn!(%error, "the last traces may not be exported");
        }
    }
}

/// The description of this server in traces. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` are used if they are set.
fn resource(settings: &Settings, addr: SocketAddr) -> Resource {
    let instance = match &settings.node {
        Some(node) => node.clone(),
        None => addr.to_string(),
    };
    let own = Resource::builder_empty()
        .with_service_name("sclub")
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let given = Resource::builder().build();
    let is_known = |(key, value): &(&opentelemetry::Key, &opentelemetry::Value)| {
        // The default of the SDK for a service without a name.
        key.as_str() != "service.name" || !value.as_str().starts_with("unknown_service")
    };
    let given = given.iter().filter(is_known);
    let given = given.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let own = own
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    // The last one of a name is used.
    Resource::builder_empty()
        .with_attributes(own.chain(given).collect::<Vec<_>>())
        .build()
}

/// Samples requests as their caller did, or else a share of them. Fits and snapshots, which are few, are always sampled.
#[derive(Debug, Clone)]
struct Sampling(Sampler);

impl Sampling {
    fn new(ratio: f64) -> Self {
        let root = Box::new(Sampler::TraceIdRatioBased(ratio));
        Self(Sampler::ParentBased(root))
    }
}

impl ShouldSample for Sampling {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let has_parent = parent.is_some_and(|parent| parent.has_active_span());
        let sampler = match kind {
            SpanKind::Internal if !has_parent => &Sampler::AlwaysOn,
            _ => &self.0,
        };
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

/// The pattern of the route of a path, such as `/v1/users/{id}`, and its space. `None` if there is no such path.
pub type Routes = fn(&str) -> Option<(String, &str)>;

/// The span of a request that is sampled.
#[derive(Debug)]
pub struct RequestSpan(Context);

impl RequestSpan {
    /// Begins the span of a request: `None` if traces are off or the request is not sampled.
    pub fn begin(method: &Method, path: &str, headers: &HeaderMap, routes: Routes) -> Option<Self> {
        let tracer = TRACER.get()?;
        let caller = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
            _ => "_OTHER",
        };
        let builder = tracer.span_builder(method.to_owned());
        let builder = builder.with_kind(SpanKind::Server);
        let mut span = builder.start_with_context(tracer, &caller);
        if !span.is_recording() {
            return None;
        }
        span.set_attribute(KeyValue::new("http.request.method", method.to_owned()));
        if let Some((route, space)) = routes(path) {
            span.update_name(format!("{method} {route}"));
            span.set_attribute(KeyValue::new("http.route", route));
            span.set_attribute(KeyValue::new("sclub.space", space.to_owned()));
        }
        Some(Self(Context::new().with_span(span)))
    }

    /// Runs a future within the span, so that spans of it are parts of the request.
    pub fn within<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        future.with_context(self.0.clone())
    }

    /// Ends the span of a request that was answered.
    pub fn answered<B>(self, answer: &Response<B>, id: &HeaderValue) {
        let (span, status) = (self.0.span(), answer.status());
        let number = i64::from(status.as_u16());
        span.set_attribute(KeyValue::new("http.response.status_code", number));
        let id = id.to_str().unwrap_or_default();
        span.set_attribute(KeyValue::new("sclub.request_id", id.to_owned()));
        if let Some(ErrorCode(code)) = answer.extensions().get::<ErrorCode>() {
            span.set_attribute(KeyValue::new("error.type", code.clone().into_owned()));
        }
        if status.is_server_error() {
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

/// A span that sampled requests wait for, so that a write knows them.
pub type Caller = Option<Box<SpanContext>>;

/// The request that is being answered, if it is sampled.
pub fn caller() -> Caller {
    TRACER.get()?;
    let context = Context::current();
    let span = context.span();
    let caller = span.span_context();
    caller.is_sampled().then(|| Box::new(caller.clone()))
}

/// A span of work inside the server. It ends when it is dropped.
#[derive(Debug)]
pub struct WorkSpan(Option<opentelemetry_sdk::trace::Span>);

/// Begins a span of its own, if traces are on.
pub fn span(name: &'static str) -> WorkSpan {
    let tracer = TRACER.get();
    WorkSpan(tracer.map(|tracer| tracer.start_with_context(name, &Context::new())))
}

/// Begins a span within those of sampled requests: the first is its parent, and the others are linked. Without any, there is no
/// span.
pub fn span_for(name: &'static str, callers: Vec<SpanContext>) -> WorkSpan {
    let mut callers = callers.into_iter();
    let (Some(tracer), Some(first)) = (TRACER.get(), callers.next()) else {
        return WorkSpan(None);
    };
    let links = callers.map(Link::with_context).collect();
    let parent = Context::new().with_remote_span_context(first);
    let builder = tracer.span_builder(name).with_links(links);
    WorkSpan(Some(builder.start_with_context(tracer, &parent)))
}

impl WorkSpan {
    /// Sets an attribute.
    pub fn number(&mut self, key: &'static str, value: u64) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX)));
        }
    }

    /// The span as the caller of spans within it.
    pub fn caller(&self) -> Caller {
        let caller = self.0.as_ref()?.span_context();
        caller.is_sampled().then(|| Box::new(caller.clone()))
    }

    /// Ends the span.
    pub fn end(mut self, is_success: bool) {
        if let Some(span) = &mut self.0
            && !is_success
        {
            span.set_status(Status::error(""));
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceFlags, TraceState};
    use opentelemetry_sdk::trace::SamplingDecision;

    use super::*;

    fn samples(ratio: f64, kind: &SpanKind, caller: Option<bool>) -> bool {
        let caller = caller.map(|is_sampled| {
            let flags = TraceFlags::default().with_sampled(is_sampled);
            let (trace, span) = (TraceId::from(7), SpanId::from(7));
            let caller = SpanContext::new(trace, span, flags, true, TraceState::NONE);
            Context::new().with_remote_span_context(caller)
        });
        let sampling = Sampling::new(ratio);
        let result = sampling.should_sample(caller.as_ref(), TraceId::from(9), "x", kind, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    #[test]
    fn the_caller_decides_then_the_ratio_and_work_of_the_server_is_always_sampled() {
        for ratio in [0.0, 1.0] {
            assert!(samples(ratio, &SpanKind::Server, Some(true)));
            assert!(!samples(ratio, &SpanKind::Server, Some(false)));
            assert_eq!(samples(ratio, &SpanKind::Server, None), ratio == 1.0);
            assert!(samples(ratio, &SpanKind::Internal, None));
            assert!(!samples(ratio, &SpanKind::Internal, Some(false)));
        }
    }

    #[test]
    fn without_traces_there_are_no_spans() {
        let route = |_: &str| -> Option<(String, &str)> { panic!("asked for a route") };
        let headers = HeaderMap::from_iter([(
            axum::http::HeaderName::from_static("traceparent"),
            HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        )]);
        assert!(RequestSpan::begin(&Method::GET, "/", &headers, route).is_none());
        assert!(caller().is_none() && span("fit").0.is_none());
        assert!(
            span_for("commit", vec![SpanContext::empty_context()])
                .0
                .is_none()
        );
    }
}
