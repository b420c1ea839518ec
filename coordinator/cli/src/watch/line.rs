//! What `watch` prints: one line, for people or as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use tenure_proto::v1;

use crate::text::{self, Wide};

/// One line of output: an event, or one shard of the state. A field that does not belong to the kind
/// of event is left out.
#[derive(Default, Serialize)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<CursorView>,
    #[serde(rename = "event")]
    pub(crate) kind: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<Wide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<Wide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_session: Option<Wide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<Wide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_ms: Option<Wide>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept_off: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crashes: Option<u32>,
}

#[derive(Serialize)]
pub(crate) struct CursorView {
    revision: Wide,
    ordinal: u32,
}

impl From<v1::Cursor> for CursorView {
    fn from(cursor: v1::Cursor) -> Self {
        Self {
            revision: Wide(cursor.revision),
            ordinal: cursor.ordinal,
        }
    }
}

/// `1024.3` is after the event with ordinal 3 of revision 1024, `1024` after the last one of it: the largest ordinal,
/// with which a coordinator says that, means nothing to people.
impl fmt::Display for CursorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.revision.0;
        match self.ordinal {
            u32::MAX => write!(f, "{revision}"),
            ordinal => write!(f, "{revision}.{ordinal}"),
        }
    }
}

/// A name with a blank in it would look like two parts.
fn quoted_if_needed(name: String) -> String {
    if name.contains([' ', '"']) {
        return format!("{name:?}");
    }
    name
}

impl Line {
    pub(crate) fn tenure(mut self, epoch: u64, owner: u64, names: &BTreeMap<u64, String>) -> Self {
        self.epoch = Some(Wide(epoch)).filter(|epoch| epoch.0 > 0);
        self.session = Some(Wide(owner)).filter(|session| session.0 > 0);
        self.worker = names.get(&owner).cloned();
        self
    }

    /// `1024.3  granted  shard=7 epoch=42 worker=w1 session=917`: what the words mean stands beside them.
    pub(crate) fn for_people(&self) -> String {
        let at = self.at_ms.map(|at| format!(" at={}", text::moment(at.0)));
        format!("{}{}", self.without_time(), at.unwrap_or_default())
    }

    /// The same after the time, as events of the past are read.
    pub(crate) fn with_time(&self) -> String {
        let at = text::moment(self.at_ms.map_or(0, |at| at.0));
        format!("{at:<20}  {}", self.without_time())
    }

    fn without_time(&self) -> String {
        let cursor = self
            .cursor
            .as_ref()
            .map_or_else(String::new, CursorView::to_string);
        let wide = |number: &Option<Wide>| number.map(|number| number.0.to_string());
        let parts = [
            ("group", self.group.clone()),
            ("shard", self.shard.map(|shard| shard.to_string())),
            ("phase", self.phase.clone()),
            ("epoch", wide(&self.epoch)),
            ("worker", self.worker.clone()),
            ("session", wide(&self.session)),
            ("address", self.address.clone()),
            ("mode", self.mode.clone()),
            ("cause", self.cause.clone()),
            (
                "detail",
                self.detail.as_ref().map(|detail| format!("{detail:?}")),
            ),
            (
                "next",
                self.next_worker
                    .clone()
                    .or_else(|| wide(&self.next_session)),
            ),
            ("floor", wide(&self.floor)),
            (
                "kept_off",
                self.kept_off.as_ref().map(|workers| workers.join(",")),
            ),
            ("crashes", self.crashes.map(|crashes| crashes.to_string())),
            ("by", self.by.clone().map(quoted_if_needed)),
            (
                "reason",
                self.reason.as_ref().map(|reason| format!("{reason:?}")),
            ),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={value}")))
            .collect();
        format!("{cursor:<12}  {:<15}  {}", self.kind, parts.join(" "))
    }
}
