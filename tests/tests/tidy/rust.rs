//! As much of Rust's grammar as the rules need: words and signs without comments, the paths written with `crate` and
//! `super`, and which part is test code.

/// A piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier, a keyword or a number.
    Word(String),
    /// A string, character or lifetime: whatever stands in quotes.
    Quoted,
    /// `::`
    PathSep,
    /// Any other sign.
    Sign(char),
}

/// A piece of code and the line it stands on.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) line: usize,
}

impl Placed {
    pub(crate) fn is(&self, sign: char) -> bool {
        self.token == Token::Sign(sign)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits code into tokens, leaving out blanks and comments.
pub(crate) fn tokens(text: &str) -> Vec<Placed> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let (token, end) = next(&chars, at);
        if let Some(token) = token {
            found.push(Placed { token, line });
        }
        line += chars[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

/// The token that begins at `at`, or none for blanks and comments, and where it ends.
fn next(chars: &[char], at: usize) -> (Option<Token>, usize) {
    let peek = |ahead: usize| chars.get(at + ahead).copied().unwrap_or('\0');
    let while_from = |from: usize, keep: &dyn Fn(char) -> bool| {
        (from..chars.len()).find(|i| !keep(chars[*i])).unwrap_or(chars.len())
    };
    match (chars[at], peek(1)) {
        (c, _) if c.is_whitespace() => (None, at + 1),
        ('/', '/') => (None, while_from(at, &|c| c != '\n')),
        ('/', '*') => (None, end_of_block_comment(chars, at)),
        ('"', _) => (Some(Token::Quoted), end_of_string(chars, at + 1)),
        ('\'', _) => (Some(Token::Quoted), end_of_char_or_lifetime(chars, at)),
        (':', ':') => (Some(Token::PathSep), at + 2),
        (c, _) if c.is_alphanumeric() || c == '_' => {
            let end = while_from(at, &|c| c.is_alphanumeric() || c == '_');
            let word: String = chars[at..end].iter().collect();
            let hashes = while_from(end, &|c| c == '#') - end;
            let quote = chars.get(end + hashes).copied();
            match (word.as_str(), quote) {
                ("r" | "br" | "cr", Some('"')) => {
                    (Some(Token::Quoted), end_of_raw_string(chars, end + hashes + 1, hashes))
                }
                ("b" | "c", Some('"')) if hashes == 0 => (Some(Token::Quoted), end_of_string(chars, end + 1)),
                ("b", Some('\'')) if hashes == 0 => {
                    (Some(Token::Quoted), end_of_char_or_lifetime(chars, end))
                }
                _ => (Some(Token::Word(word)), end),
            }
        }
        (c, _) => (Some(Token::Sign(c)), at + 1),
    }
}

fn end_of_string(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn end_of_raw_string(chars: &[char], from: usize, hashes: usize) -> usize {
    let closes = |at: usize| chars[at] == '"' && (1..=hashes).all(|i| chars.get(at + i) == Some(&'#'));
    (from..chars.len()).find(|at| closes(*at)).map_or(chars.len(), |at| at + 1 + hashes)
}

fn end_of_char_or_lifetime(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = (at + 3..chars.len()).find(|i| chars[*i] == '\'');
        return close.map_or(chars.len(), |i| i + 1);
    }
    if chars.get(at + 2) == Some(&'\'') {
        return at + 3;
    }
    (at + 1..chars.len()).find(|i| !(chars[*i].is_alphanumeric() || chars[*i] == '_')).unwrap_or(chars.len())
}

fn end_of_block_comment(chars: &[char], at: usize) -> usize {
    let (mut at, mut depth) = (at + 2, 1);
    while at < chars.len() && depth > 0 {
        let pair = (chars[at], chars.get(at + 1).copied().unwrap_or('\0'));
        match pair {
            ('/', '*') => (at, depth) = (at + 2, depth + 1),
            ('*', '/') => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

/// The tokens without the modules marked `#[cfg(test)]`.
pub(crate) fn without_test_modules(tokens: &[Placed]) -> Vec<Placed> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match end_of_test_module(tokens, at) {
            Some(end) => at = end,
            None => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// Where the module ends whose `#[cfg(test)] mod name {` begins at `at`.
fn end_of_test_module(tokens: &[Placed], at: usize) -> Option<usize> {
    let begins = |from: usize, words: &[&str]| {
        words.iter().enumerate().all(|(i, word)| {
            tokens.get(from + i).is_some_and(|token| match token.word() {
                Some(found) => found == *word,
                None => word.chars().next().is_some_and(|sign| token.is(sign)),
            })
        })
    };
    if !begins(at, &["#", "[", "cfg", "(", "test", ")", "]", "mod"]) {
        return None;
    }
    // A name and a brace; `mod tests;` has no body, and its file is known by its name.
    if !tokens.get(at + 9)?.is('{') {
        return None;
    }
    Some(end_of_block(tokens, at + 9))
}

/// Where the block ends whose opening sign stands at `open`.
pub(crate) fn end_of_block(tokens: &[Placed], open: usize) -> usize {
    let mut depth = 0;
    for (at, placed) in tokens.iter().enumerate().skip(open) {
        match placed.token {
            Token::Sign('{' | '(' | '[') => depth += 1,
            Token::Sign('}' | ')' | ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// A path from the root of the crate, such as `[contract, Scheme]`, and the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CratePath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// All paths that begin with `crate::` or `super::`, groups taken apart, seen from the module `here`.
pub(crate) fn crate_paths(tokens: &[Placed], here: &[String]) -> Vec<CratePath> {
    let mut found = Vec::new();
    let mut module = Module::new(here);
    for at in 0..tokens.len() {
        module.step(tokens, at);
        let continues = at > 0 && (tokens[at - 1].token == Token::PathSep || tokens[at - 1].is('$'));
        let is_path = tokens.get(at + 1).is_some_and(|next| next.token == Token::PathSep);
        if continues || !is_path {
            continue;
        }
        let Some(first) = tokens[at].word() else { continue };
        let Some(mut base) = module.resolve(first) else { continue };
        let mut rest = at + 2;
        while tokens.get(rest).and_then(Placed::word) == Some("super") {
            base.pop();
            rest += 2;
        }
        tree(tokens, rest, base, &mut found);
    }
    found
}

/// Reads `a::b`, `{a, b::c}` or `*` at `at`, below `base`; returns where it ends.
fn tree(tokens: &[Placed], mut at: usize, mut base: Vec<String>, found: &mut Vec<CratePath>) -> usize {
    loop {
        let Some(placed) = tokens.get(at) else { return at };
        if placed.is('{') {
            let end = end_of_block(tokens, at);
            at += 1;
            while at + 1 < end {
                at = tree(tokens, at, base.clone(), found).max(at + 1);
                while at + 1 < end && !tokens[at - 1].is(',') {
                    at += 1;
                }
            }
            return end;
        }
        if let Some(word) = placed.word().filter(|word| *word != "self") {
            base.push(word.to_owned());
        }
        let goes_on = tokens.get(at + 1).is_some_and(|next| next.token == Token::PathSep);
        if !goes_on || placed.word().is_none() {
            found.push(CratePath { segments: base, line: placed.line });
            return at + 1;
        }
        at += 2;
    }
}

/// Which module a token stands in, inline modules included.
struct Module {
    path: Vec<String>,
    depth: usize,
    /// At which depth of braces each inline module was opened.
    inline: Vec<usize>,
}

impl Module {
    fn new(file: &[String]) -> Self {
        Module { path: file.to_vec(), depth: 0, inline: Vec::new() }
    }

    fn step(&mut self, tokens: &[Placed], at: usize) {
        if tokens[at].is('{') {
            self.depth += 1;
            if at >= 2 && tokens[at - 2].word() == Some("mod") {
                self.path.extend(tokens[at - 1].word().map(str::to_owned));
                self.inline.push(self.depth);
            }
        } else if tokens[at].is('}') {
            if self.inline.last() == Some(&self.depth) {
                self.inline.pop();
                self.path.pop();
            }
            self.depth = self.depth.saturating_sub(1);
        }
    }

    /// What `crate` or `super` stands for here.
    fn resolve(&self, first: &str) -> Option<Vec<String>> {
        match first {
            "crate" => Some(Vec::new()),
            "super" => Some(self.path[..self.path.len().saturating_sub(1)].to_vec()),
            _ => None,
        }
    }
}
