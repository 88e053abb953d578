//! Counts spans, so that an operator sees that some are lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

use crate::meters::metric;

/// The sampled spans of this process that have ended, and those that the collector has.
static ENDED: AtomicU64 = AtomicU64::new(0);
static EXPORTED: AtomicU64 = AtomicU64::new(0);

/// The counts of spans, in Prometheus' text format.
pub fn span_metrics() -> String {
    let of = |count: &AtomicU64| [(String::new(), count.load(Ordering::Relaxed) as f64)];
    let ended = "Sampled spans that have ended";
    let exported = "Spans that the collector has accepted. The others wait, or are lost";
    metric("sclub_spans_total", "counter", ended, of(&ENDED))
        + &metric(
            "sclub_spans_exported_total",
            "counter",
            exported,
            of(&EXPORTED),
        )
}

/// A bounded queue of spans, and the thread that exports them.
#[derive(Debug)]
pub(super) struct Counted(BatchSpanProcessor);

impl Counted {
    pub(super) fn new(exporter: OtlpExporter) -> Self {
        Self(BatchSpanProcessor::builder(CountedExporter(exporter)).build())
    }
}

impl SpanProcessor for Counted {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        ENDED.fetch_add(1, Ordering::Relaxed);
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

#[derive(Debug)]
struct CountedExporter(OtlpExporter);

impl SpanExporter for CountedExporter {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let count = spans.len() as u64;
        let exported = self.0.export(spans).await;
        if exported.is_ok() {
            EXPORTED.fetch_add(count, Ordering::Relaxed);
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
