//! Traces over several nodes: the request that one node forwards and another answers is one trace.

use std::str::FromStr;

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use serde::{Deserialize, Serialize};

use super::{Caller, RequestSpan, TRACER, WorkSpan};

/// The maximum length of a trace state that is sent to another node. Longer ones may be dropped (W3C Trace Context, 3.3.1.5).
const MAX_STATE: usize = 512;

/// A sampled span of another node, as it is in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCaller {
    trace: [u8; 16],
    span: [u8; 8],
    /// The `tracestate` of the trace.
    state: String,
}

impl SentCaller {
    /// A span of this node, for a message.
    pub fn new(caller: &SpanContext) -> Self {
        let mut state = caller.trace_state().header();
        if state.len() > MAX_STATE {
            state.clear();
        }
        Self {
            trace: caller.trace_id().to_bytes(),
            span: caller.span_id().to_bytes(),
            state,
        }
    }

    /// The span.
    fn context(&self) -> SpanContext {
        SpanContext::new(
            TraceId::from_bytes(self.trace),
            SpanId::from_bytes(self.span),
            TraceFlags::SAMPLED,
            true,
            TraceState::from_str(&self.state).unwrap_or_default(),
        )
    }
}

/// Begins the span of a call to the node that owns a group, within the request that is being answered. Without a sampled
/// request there is no span.
pub fn forward(group: &str, owner: &str) -> WorkSpan {
    let (Some(tracer), Some(caller)) = (TRACER.get(), super::caller()) else {
        return WorkSpan(None);
    };
    let parent = Context::new().with_remote_span_context(*caller);
    let builder = tracer.span_builder("forward").with_kind(SpanKind::Client);
    let builder = builder.with_attributes([
        KeyValue::new("sclub.partition", group.to_owned()),
        KeyValue::new("sclub.owner", owner.to_owned()),
    ]);
    WorkSpan(Some(builder.start_with_context(tracer, &parent)))
}

impl RequestSpan {
    /// Begins the span of a call that another node has forwarded, within the span of that node: `None` if traces are off or
    /// the request is not sampled.
    pub fn begin_forwarded(caller: Option<&SentCaller>, group: &str) -> Option<Self> {
        let (tracer, caller) = (TRACER.get()?, caller?);
        let parent = Context::new().with_remote_span_context(caller.context());
        let builder = tracer.span_builder("answer").with_kind(SpanKind::Server);
        let mut span = builder.start_with_context(tracer, &parent);
        span.set_attribute(KeyValue::new("sclub.partition", group.to_owned()));
        Some(Self(Context::new().with_span(span)))
    }

    /// Ends the span.
    pub fn end(self, is_success: bool) {
        if !is_success {
            self.0.span().set_status(Status::error(""));
        }
        self.0.span().end();
    }
}

/// The callers of the calls of a message, by their places in it. Calls without one are left out, so that a message without
/// traces has no bytes for them.
pub fn sent_callers<'a>(callers: impl Iterator<Item = &'a Caller>) -> Vec<(u32, SentCaller)> {
    let sent = callers.enumerate().filter_map(|(place, caller)| {
        let caller = caller.as_deref()?;
        Some((place as u32, SentCaller::new(caller)))
    });
    sent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_the_same_after_a_message_and_a_long_state_is_dropped() {
        let sampled = |state: &str| {
            let state = TraceState::from_str(state).unwrap();
            let (trace, span) = (TraceId::from(7), SpanId::from(9));
            SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state)
        };
        let caller = sampled("vendor=value,other=1");
        assert_eq!(SentCaller::new(&caller).context(), caller);
        let entries: Vec<String> = (0..MAX_STATE / 100)
            .map(|n| format!("vendor{n}={}", "x".repeat(100)))
            .collect();
        let long = sampled(&entries.join(","));
        assert_eq!(SentCaller::new(&long).context(), sampled(""));
        let callers = [None, Some(Box::new(caller.clone())), None];
        let sent = sent_callers(callers.iter());
        assert_eq!(sent, [(1, SentCaller::new(&caller))]);
    }
}
