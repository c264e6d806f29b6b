//! A reader of events as the standard wants it, for tests. Source: WHATWG HTML §9.2.6.

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: String,
    /// The last id that came, with this event or before it.
    pub(crate) id: String,
}

/// Parses a whole stream.
pub(crate) fn parse(stream: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut events = vec![];
    let (mut kind, mut data, mut id) = (String::new(), String::new(), String::new());
    for line in lines(text) {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                events.push(Event {
                    kind: std::mem::take(&mut kind),
                    data: std::mem::take(&mut data),
                    id: id.clone(),
                });
            }
            (kind, data) = (String::new(), String::new());
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_owned(),
            "id" => id = value.to_owned(),
            "data" => {
                data.push_str(value);
                data.push('\n');
            }
            _ => {}
        }
    }
    events
}

/// Complete lines, however they end.
fn lines(text: &str) -> Vec<&str> {
    let mut lines = vec![];
    let mut rest = text;
    while let Some(end) = rest.find(['\r', '\n']) {
        lines.push(&rest[..end]);
        let is_crlf = rest[end..].starts_with("\r\n");
        rest = &rest[end + if is_crlf { 2 } else { 1 }..];
    }
    lines
}
