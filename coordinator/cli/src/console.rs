//! Where a command writes: data to stdout as tables or JSON, talk to stderr.

use std::fmt::Display;
use std::io::{BufRead, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::error::CliError;
use crate::text::printable;

/// The two streams of a command. Nothing written here has colours.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    width: Option<u16>,
    json: bool,
    input: Option<&'a mut dyn BufRead>,
}

/// A column of a table.
pub(crate) enum Column {
    /// Words: aligned left.
    Text(&'static str),
    /// Numbers: aligned right.
    Number(&'static str),
}

impl<'a> Console<'a> {
    /// Makes a console. `width` is that of the terminal in characters; `None` if `out` is none, so that
    /// a line of a table stays one line whatever its length.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, width: Option<u16>) -> Self {
        Self {
            out,
            err,
            width,
            json: false,
            input: None,
        }
    }

    /// Lets somebody at a terminal answer questions. Without, whatever needs an answer is refused.
    #[must_use]
    pub fn asking(mut self, input: &'a mut dyn BufRead) -> Self {
        self.input = Some(input);
        self
    }

    /// Asks whether to do what cannot be undone; `yes` is the answer given in the arguments.
    ///
    /// # Errors
    /// [`CliError::Usage`] if nobody is there to be asked, [`CliError::Refused`] for any answer but yes.
    pub(crate) fn confirm(&mut self, yes: bool, what: impl Display) -> Result<(), CliError> {
        if yes {
            return Ok(());
        }
        let Some(input) = &mut self.input else {
            let message = format!("{what}; that cannot be undone: add --yes to do it");
            return Err(CliError::Usage { message });
        };
        write!(self.err, "{what}. That cannot be undone. Go on? [y/N] ")
            .and_then(|()| self.err.flush())
            .map_err(CliError::Output)?;
        let mut answer = String::new();
        input.read_line(&mut answer).map_err(CliError::Output)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::Refused {
                message: "not confirmed, nothing was changed".to_owned(),
            }),
        }
    }

    pub(crate) fn set_json(&mut self, json: bool) {
        self.json = json;
    }

    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Writes one JSON document.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text =
            serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
        self.line(&text)
    }

    /// Writes one line of JSON and hands it on at once: somebody waits for it.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string(value).map_err(|error| CliError::Output(error.into()))?;
        self.line(&text)?;
        self.flush()
    }

    /// Writes one line of data.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), CliError> {
        writeln!(self.out, "{line}").map_err(CliError::Output)
    }

    /// Writes a table with a header, also when it has no rows.
    pub(crate) fn table(
        &mut self,
        columns: &[Column],
        rows: Vec<Vec<String>>,
    ) -> Result<(), CliError> {
        let mut table = self.plain_table();
        table.set_header(columns.iter().map(|column| match column {
            Column::Text(title) => Cell::new(title),
            Column::Number(title) => Cell::new(title).set_alignment(CellAlignment::Right),
        }));
        for row in rows {
            table.add_row(
                row.into_iter()
                    .zip(columns)
                    .map(|(cell, column)| match column {
                        Column::Text(_) => Cell::new(printable(&cell)),
                        Column::Number(_) => Cell::new(cell).set_alignment(CellAlignment::Right),
                    }),
            );
        }
        self.write_table(&mut table)
    }

    /// Writes what belongs to one thing: a name and a value on each line.
    pub(crate) fn details(&mut self, rows: Vec<(&str, String)>) -> Result<(), CliError> {
        let mut table = self.plain_table();
        for (name, value) in rows {
            table.add_row([name.to_owned(), printable(&value)]);
        }
        self.write_table(&mut table)
    }

    /// Writes one line of talk.
    pub(crate) fn note(&mut self, text: impl Display) -> Result<(), CliError> {
        writeln!(self.err, "{text}").map_err(CliError::Output)
    }

    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        self.out.flush().map_err(CliError::Output)
    }

    fn plain_table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        if let Some(width) = self.width {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }
        table
    }

    fn write_table(&mut self, table: &mut Table) -> Result<(), CliError> {
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.lines() {
            // Cells are filled up to their width; blanks at the end would wrap in a narrow terminal.
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(width: Option<u16>) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, width);
        let columns = [
            Column::Text("NAME"),
            Column::Number("SHARDS"),
            Column::Text("NOTE"),
        ];
        let note = "a note of many words that does not fit beside the rest";
        let row = vec!["orders".to_owned(), "64".to_owned(), note.to_owned()];
        console.table(&columns, vec![row]).unwrap();
        assert!(err.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let text = printed(Some(40));
        assert!(text.lines().count() > 2, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 40, "{line:?}");
        }
    }

    #[test]
    fn a_row_stays_one_line_where_there_is_no_terminal() {
        assert_eq!(
            printed(None),
            "NAME    SHARDS  NOTE\norders      64  \
             a note of many words that does not fit beside the rest\n",
        );
    }

    #[test]
    fn what_cannot_be_undone_is_done_only_after_a_yes() {
        for (typed, done) in [
            ("y\n", true),
            ("YES\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
        ] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut input = typed.as_bytes();
            let mut console = Console::new(&mut out, &mut err, None).asking(&mut input);
            let confirmed = console.confirm(false, "node 3 will be removed");
            assert_eq!(confirmed.is_ok(), done, "{typed:?}");
            let asked = String::from_utf8(err).unwrap();
            assert!(asked.starts_with("node 3 will be removed. That cannot be undone."));
        }
    }

    #[test]
    fn nobody_is_asked_where_nobody_is() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, None);
        let refused = console.confirm(false, "it goes").unwrap_err().to_string();
        assert_eq!(
            refused,
            "it goes; that cannot be undone: add --yes to do it"
        );
        console.confirm(true, "it goes").unwrap();
        assert!(err.is_empty());
    }
}
