//! RFC 8259 read literally: is it JSON, and how deep is it? Without recursion.

/// Deepest nesting of `text` if it is one JSON value in UTF-8, else `None`.
pub(super) fn depth(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?;
    let mut reader = Reader { rest: text, open: Vec::new(), deepest: 0 };
    reader.blanks();
    while !reader.value()? {
        // A value or key is expected again.
    }
    reader.rest.is_empty().then_some(reader.deepest)
}

struct Reader<'a> {
    rest: &'a [u8],
    /// The closing bytes of what is open.
    open: Vec<u8>,
    deepest: u32,
}

impl Reader<'_> {
    /// Reads a value, or the beginning of one that holds others. True once everything is closed.
    fn value(&mut self) -> Option<bool> {
        match *self.rest.first()? {
            b'[' => self.begin(b']'),
            b'{' => self.begin(b'}'),
            b'"' => self.string().and_then(|()| self.after_value()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number().and_then(|()| self.after_value()),
        }
    }

    fn begin(&mut self, close: u8) -> Option<bool> {
        self.skip(1);
        self.open.push(close);
        self.deepest = self.deepest.max(self.open.len() as u32);
        self.blanks();
        if self.rest.first() == Some(&close) {
            return self.after_value();
        }
        self.key_if_object().map(|()| false)
    }

    /// Closes what ends here; true if nothing is open any more.
    fn after_value(&mut self) -> Option<bool> {
        self.blanks();
        while let Some(close) = self.open.last().copied() {
            match *self.rest.first()? {
                b',' => {
                    self.skip(1);
                    self.blanks();
                    return self.key_if_object().map(|()| false);
                }
                byte if byte == close => {
                    self.skip(1);
                    self.open.pop();
                    self.blanks();
                }
                _ => return None,
            }
        }
        Some(true)
    }

    fn key_if_object(&mut self) -> Option<()> {
        if self.open.last() != Some(&b'}') {
            return Some(());
        }
        self.string()?;
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            let byte = self.next()?;
            match byte {
                b'"' => return Some(()),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        let digits = self.rest.get(..4)?;
                        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                        self.skip(4);
                    }
                    _ => return None,
                },
                0..0x20 => return None,
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        self.skip_if(b"-");
        if !self.skip_if(b"0") {
            self.digits()?;
        }
        if self.skip_if(b".") {
            self.digits()?;
        }
        if self.skip_if(b"eE") {
            self.skip_if(b"+-");
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.skip(count);
        (count > 0).then_some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<bool> {
        self.rest = self.rest.strip_prefix(word)?;
        self.after_value()
    }

    fn blanks(&mut self) {
        let is_blank = |byte: &&u8| b" \t\r\n".contains(*byte);
        self.skip(self.rest.iter().take_while(is_blank).count());
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.rest.first()?;
        self.skip(1);
        Some(byte)
    }

    fn skip_if(&mut self, any_of: &[u8]) -> bool {
        let is_there = self.rest.first().is_some_and(|byte| any_of.contains(byte));
        self.skip(usize::from(is_there));
        is_there
    }

    fn skip(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}
