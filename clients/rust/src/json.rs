//! JSON, as far as the protocol needs it.

const MAX_DEPTH: usize = 64;

#[derive(Debug)]
pub enum Json {
    Null,
    Bool(bool),
    /// The text of a number: integers keep all their digits.
    Number(String),
    Text(String),
    /// Its items are checked, but not kept.
    List,
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(bytes: &[u8]) -> Option<Json> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parser = Parser { rest: text };
        let value = parser.value(0)?;
        parser.skip_space();
        parser.rest.is_empty().then_some(value)
    }

    /// The value of a key, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Json::Object(items) = self else {
            return None;
        };
        items.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn integer(&self) -> Option<i128> {
        match self {
            Json::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn bool(&self) -> Option<bool> {
        match self {
            Json::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    /// Skips space and this text, if it is next.
    fn take(&mut self, text: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.skip_space();
        match self.rest.bytes().next()? {
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b'"' => self.text().map(Json::Text),
            b't' => self.take("true").then_some(Json::Bool(true)),
            b'f' => self.take("false").then_some(Json::Bool(false)),
            b'n' => self.take("null").then_some(Json::Null),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut items = Vec::new();
        self.take("{");
        if self.take("}") {
            return Some(Json::Object(items));
        }
        loop {
            self.skip_space();
            let key = self.text()?;
            if !self.take(":") {
                return None;
            }
            items.push((key, self.value(depth + 1)?));
            if self.take("}") {
                return Some(Json::Object(items));
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Json> {
        self.take("[");
        if self.take("]") {
            return Some(Json::List);
        }
        loop {
            self.value(depth + 1)?;
            if self.take("]") {
                return Some(Json::List);
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_finite = text.parse::<f64>().ok()?.is_finite();
        if !is_finite || !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        Some(Json::Number(text.to_string()))
    }

    fn text(&mut self) -> Option<String> {
        let mut text = String::new();
        self.rest = self.rest.strip_prefix('"')?;
        loop {
            let at = self.rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            text.push_str(&self.rest[..at]);
            let found = self.rest.as_bytes()[at];
            self.rest = &self.rest[at + 1..];
            match found {
                b'"' => return Some(text),
                b'\\' => text.push(self.escaped()?),
                _ => return None,
            }
        }
    }

    /// The character after a backslash.
    fn escaped(&mut self) -> Option<char> {
        let escape = self.rest.chars().next()?;
        self.rest = &self.rest[escape.len_utf8()..];
        Some(match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = self.unit()?;
                if !(0xD800..0xDC00).contains(&unit) {
                    return char::from_u32(unit);
                }
                self.rest = self.rest.strip_prefix("\\u")?;
                let low = self.unit()?;
                if !(0xDC00..0xE000).contains(&low) {
                    return None;
                }
                char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))?
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok()
    }
}

/// A text in quotes.
pub fn quoted(text: &str) -> String {
    let mut found = String::with_capacity(text.len() + 2);
    found.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                found.push('\\');
                found.push(c);
            }
            c if c < ' ' => found.push_str(&format!("\\u{:04x}", c as u32)),
            c => found.push(c),
        }
    }
    found.push('"');
    found
}

/// A list of values that are JSON already.
pub fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{quoted, Json};

    #[test]
    fn it_reads_what_it_writes() {
        for text in ["", "a \"b\" \\ c", "line\n\ttab \u{1}", "é 漢 😀"] {
            let Some(Json::Text(found)) = Json::parse(quoted(text).as_bytes()) else {
                panic!("{text}");
            };
            assert_eq!(found, text);
        }
    }

    #[test]
    fn it_reads_values() {
        let text =
            br#" {"a": [1, [], {}], "n": -12, "x": 2.5e3, "t": true, "b": {"c": "\ud83d\ude00"}} "#;
        let json = Json::parse(text).unwrap();
        assert_eq!(json.get("n").unwrap().integer(), Some(-12));
        assert_eq!(json.get("x").unwrap().integer(), None);
        assert_eq!(json.get("t").unwrap().bool(), Some(true));
        let Some(Json::Text(text)) = json.get("b").unwrap().get("c") else { panic!() };
        assert_eq!(text, "😀");
    }

    #[test]
    fn it_refuses_what_is_not_json() {
        let deep = "[".repeat(100_000);
        let bad = r#"{ [1,] {"a"} nan - 1e999 +1 .5 inf "\x" "\ud800" "\ud800\u0041" "\u12" "\u+123" tru"#;
        let bad = bad.split(' ').chain(["", "\"\n\"", "{} {}", &deep]);
        for text in bad {
            assert!(Json::parse(text.as_bytes()).is_none(), "{text:.20}");
        }
        assert!(Json::parse(b"\"\xff\"").is_none());
    }
}
