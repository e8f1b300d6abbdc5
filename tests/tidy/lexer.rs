//! Rust source as tokens, and the parts of it that are tests: as much of the language as the rules
//! need.

use std::ops::Range;

/// What a token is. Its text is the bytes from `start` to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word,
    /// One character of punctuation.
    Mark(u8),
    /// A string of any kind, with its quotes.
    Text,
    /// A number, a character, or a lifetime.
    Other,
    /// A comment that belongs to no item.
    Comment,
    /// Documentation of the next item.
    Doc,
    /// Documentation of the file.
    Head,
}

/// A token and its place.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    /// Counted from 1.
    pub line: usize,
}

/// A function with a body.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// The line of the word `fn`.
    pub line: usize,
    /// From the line of `fn` to the line of the closing brace.
    pub line_count: usize,
    /// Whether it has the attribute `#[test]`.
    pub is_test: bool,
}

/// A file of Rust source.
#[derive(Debug)]
pub struct Rust {
    /// Everything but comments.
    pub code: Vec<Token>,
    pub comments: Vec<Token>,
    /// The bytes of items that are compiled for tests only.
    pub tests: Vec<Range<usize>>,
    pub functions: Vec<Function>,
}

impl Rust {
    /// Splits `text`. Text that is no Rust gives some tokens, and never an error.
    pub fn new(text: &str) -> Rust {
        let (comments, code): (Vec<_>, Vec<_>) = Lexer { text, at: 0, line: 1 }
            .partition(|token| matches!(token.kind, Kind::Comment | Kind::Doc | Kind::Head));
        let mut rust = Rust { code, comments, tests: Vec::new(), functions: Vec::new() };
        rust.find_tests(text);
        rust.find_functions(text);
        rust
    }

    /// Whether the byte belongs to an item that is compiled for tests only.
    pub fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The text of the code token `index`; empty after the last one.
    pub fn text<'t>(&self, text: &'t str, index: usize) -> &'t str {
        self.code.get(index).map_or("", |token| &text[token.start..token.end])
    }

    /// Whether the code token `index` is this character of punctuation.
    pub fn is_mark(&self, index: usize, mark: u8) -> bool {
        self.code.get(index).is_some_and(|token| token.kind == Kind::Mark(mark))
    }

    /// The index of the token that closes the bracket at `open`, or of the last token.
    pub fn closing(&self, open: usize) -> usize {
        let mut depth = 0;
        for index in open..self.code.len() {
            match self.code[index].kind {
                Kind::Mark(b'(' | b'[' | b'{') => depth += 1,
                Kind::Mark(b')' | b']' | b'}') => depth -= 1,
                _ => {}
            }
            if depth <= 0 {
                return index;
            }
        }
        self.code.len().saturating_sub(1)
    }

    /// If an attribute of an item begins at `index`: the index after it.
    fn after_attribute(&self, index: usize) -> Option<usize> {
        let is_attribute = self.is_mark(index, b'#') && self.is_mark(index + 1, b'[');
        is_attribute.then(|| self.closing(index + 1) + 1)
    }

    fn find_tests(&mut self, text: &str) {
        let mut index = 0;
        while index < self.code.len() {
            let is_whole_file = self.is_mark(index, b'#') && self.is_mark(index + 1, b'!');
            if is_whole_file && self.is_for_tests(text, index + 3) {
                self.tests.push(0..text.len());
                return;
            }
            match self.after_attribute(index) {
                Some(after) if self.is_for_tests(text, index + 2) => {
                    let end = self.end_of_item(text, after);
                    self.tests.push(self.code[index].start..self.code[end].end);
                    index = end + 1;
                }
                Some(after) => index = after,
                None => index += 1,
            }
        }
    }

    /// Whether the attribute with its first word at `index` is `test`, `cfg(test)` or
    /// `cfg(all(test, ...))`.
    fn is_for_tests(&self, text: &str, index: usize) -> bool {
        match self.text(text, index) {
            "test" => true,
            "cfg" => match self.text(text, index + 2) {
                "test" => self.is_mark(index + 3, b')'),
                "all" => self.text(text, index + 4) == "test",
                _ => false,
            },
            _ => false,
        }
    }

    /// The last token of the item, field or statement that begins at `index`, after its attributes.
    fn end_of_item(&self, text: &str, mut index: usize) -> usize {
        while let Some(after) = self.after_attribute(index) {
            index = after;
        }
        let mut first = index;
        if self.text(text, first) == "pub" {
            first += 1;
            if self.is_mark(first, b'(') {
                first = self.closing(first) + 1;
            }
        }
        let is_item = ITEMS.contains(&self.text(text, first));
        let is_use = self.text(text, first) == "use";
        while index < self.code.len() {
            match self.code[index].kind {
                Kind::Mark(b'(' | b'[') => index = self.closing(index),
                Kind::Mark(b'{') if !is_use => return self.closing(index),
                Kind::Mark(b'{') => index = self.closing(index),
                Kind::Mark(b';') => return index,
                Kind::Mark(b',') if !is_item => return index,
                Kind::Mark(b'}') => return index - 1,
                _ => {}
            }
            index += 1;
        }
        self.code.len() - 1
    }

    fn find_functions(&mut self, text: &str) {
        let mut is_test = false;
        let mut index = 0;
        while index < self.code.len() {
            if let Some(after) = self.after_attribute(index) {
                is_test |= self.text(text, index + 2) == "test";
                index = after;
                continue;
            }
            let is_named = self.code.get(index + 1).is_some_and(|next| next.kind == Kind::Word);
            if self.text(text, index) == "fn" && is_named {
                if let Some(end) = self.end_of_body(index) {
                    let line = self.code[index].line;
                    let name = self.text(text, index + 1).to_owned();
                    let line_count = self.code[end].line - line + 1;
                    self.functions.push(Function { name, line, line_count, is_test });
                }
                is_test = false;
            }
            index += 1;
        }
    }

    /// The closing brace of the function with `fn` at `index`, if it has a body.
    fn end_of_body(&self, mut index: usize) -> Option<usize> {
        while index < self.code.len() {
            match self.code[index].kind {
                Kind::Mark(b'(' | b'[') => index = self.closing(index),
                Kind::Mark(b'{') => return Some(self.closing(index)),
                Kind::Mark(b';') => return None,
                _ => {}
            }
            index += 1;
        }
        None
    }
}

const ITEMS: [&str; 16] = [
    "fn",
    "mod",
    "use",
    "struct",
    "enum",
    "union",
    "impl",
    "const",
    "static",
    "type",
    "trait",
    "unsafe",
    "extern",
    "async",
    "macro_rules",
    "default",
];

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let first = *rest.as_bytes().first()?;
        let (kind, length) = match first {
            b'/' if rest.starts_with("//") => line_comment(rest),
            b'/' if rest.starts_with("/*") => block_comment(rest),
            b'"' => (Kind::Text, string(rest, 0)),
            b'\'' => (Kind::Other, quoted(rest)),
            b'0'..=b'9' => (Kind::Other, number(rest)),
            _ if is_word(first) => word(rest),
            _ => (Kind::Mark(first), rest.chars().next().map_or(1, char::len_utf8)),
        };
        let start = self.at;
        let token = Token { kind, start, end: start + length, line: self.line };
        self.line += rest[..length].bytes().filter(|byte| *byte == b'\n').count();
        self.at += length;
        Some(token)
    }
}

impl Lexer<'_> {
    fn skip_blanks(&mut self) {
        for byte in self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_whitespace()) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn line_comment(rest: &str) -> (Kind, usize) {
    let kind = match rest.as_bytes().get(2) {
        Some(b'!') => Kind::Head,
        Some(b'/') if !rest.starts_with("////") => Kind::Doc,
        _ => Kind::Comment,
    };
    (kind, rest.find('\n').unwrap_or(rest.len()))
}

fn block_comment(rest: &str) -> (Kind, usize) {
    let kind = match rest.as_bytes().get(2) {
        Some(b'!') => Kind::Head,
        Some(b'*') if !rest.starts_with("/**/") => Kind::Doc,
        _ => Kind::Comment,
    };
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    (kind, at)
}

/// The length of a string whose opening quote is at `open`.
fn string(rest: &str, open: usize) -> usize {
    let bytes = rest.as_bytes();
    let mut at = open + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The length of a raw string whose `#` or opening quote is at `open`.
fn raw_string(rest: &str, open: usize) -> usize {
    let hash_count = rest[open..].bytes().take_while(|byte| *byte == b'#').count();
    let close = format!("\"{}", "#".repeat(hash_count));
    let content = open + hash_count + 1;
    rest.get(content..)
        .and_then(|text| text.find(&close))
        .map_or(rest.len(), |end| content + end + close.len())
}

/// The length of a character or a lifetime.
fn quoted(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            // The character after the backslash may be a quote.
            let next = at + rest[at..].chars().next().map_or(0, char::len_utf8);
            rest[next..].find('\'').map_or(rest.len(), |end| next + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1 + rest[1..].bytes().take_while(|byte| is_word(*byte)).count(),
    }
}

fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let is_fraction = bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !is_word(bytes[at]) && !is_fraction {
            break;
        }
        at += 1;
    }
    at
}

/// A word, or the string or character that it introduces.
fn word(rest: &str) -> (Kind, usize) {
    let end = rest.bytes().take_while(|byte| is_word(*byte)).count();
    let next = rest.as_bytes().get(end);
    match (&rest[..end], next) {
        ("b" | "c", Some(b'"')) => (Kind::Text, string(rest, end)),
        ("r" | "br" | "cr", Some(b'"')) => (Kind::Text, raw_string(rest, end)),
        ("b", Some(b'\'')) => (Kind::Other, end + quoted(&rest[end..])),
        ("r" | "br" | "cr", Some(b'#')) => {
            let after = rest[end..].trim_start_matches('#');
            if after.starts_with('"') {
                (Kind::Text, raw_string(rest, end))
            } else {
                let name = after.bytes().take_while(|byte| is_word(*byte)).count();
                (Kind::Word, rest.len() - after.len() + name)
            }
        }
        _ => (Kind::Word, end),
    }
}

#[test]
fn strings_comments_and_lifetimes_are_told_apart() {
    let text = r##"fn a<'b>() { '\''; "// no"; r#"" /*"#; b'x'; 'é'; 1.5; x.0..3 } // "yes"
        /* one /* two */ */ /// doc"##;
    let rust = Rust::new(text);
    let of = |tokens: &[Token], kind| -> Vec<&str> {
        let of_kind = tokens.iter().filter(|token| token.kind == kind);
        of_kind.map(|token| &text[token.start..token.end]).collect()
    };
    assert_eq!(of(&rust.code, Kind::Text), [r#""// no""#, r##"r#"" /*"#"##]);
    assert_eq!(of(&rust.code, Kind::Other), ["'b", r"'\''", "b'x'", "'é'", "1.5", "0", "3"]);
    assert_eq!(of(&rust.comments, Kind::Comment), ["// \"yes\"", "/* one /* two */ */"]);
    assert_eq!(of(&rust.comments, Kind::Doc), ["/// doc"]);
}

#[test]
fn parts_for_tests_are_found() {
    let text = "#[cfg(test)]\nuse a::{b};\nfn c() {}\n#[cfg(test)]\nmod tests { fn d() {} }\n\
                struct E { #[cfg(test)] f: u8, g: u8 }\n#[cfg(not(test))]\nfn h() {}\n";
    let rust = Rust::new(text);
    let is_test = |word: &str| rust.is_test(text.find(word).expect(word));
    assert!(is_test("b}") && is_test("d()") && is_test("f: u8"));
    assert!(!is_test("c()") && !is_test("g: u8") && !is_test("h()"));
}

#[test]
fn functions_have_their_lines() {
    let text = "#[test]\n#[ignore]\nfn a(\n) {\n}\ntrait T { fn b(); fn c() {} }\ntype F = fn();\n";
    let rust = Rust::new(text);
    let found: Vec<_> =
        rust.functions.iter().map(|f| (&*f.name, f.line, f.line_count, f.is_test)).collect();
    assert_eq!(found, [("a", 3, 3, true), ("c", 6, 1, false)]);
}
