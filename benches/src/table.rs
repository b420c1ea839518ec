//! Tables in Markdown.

use std::fmt;

/// A table, whose first column is text and whose others are figures.
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "| {} |", self.heads.join(" | "))?;
        let aligned = "|---:".repeat(self.heads.len().saturating_sub(1));
        writeln!(formatter, "|---{aligned}|")?;
        for row in &self.rows {
            writeln!(formatter, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

/// Writes a rate without a fraction, its digits in groups of three.
#[must_use]
pub fn rate(per_second: f64) -> String {
    let digits = format!("{per_second:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_in_groups_of_three() {
        assert_eq!(rate(7.4), "7");
        assert_eq!(rate(999.6), "1,000");
        assert_eq!(rate(1_234_567.0), "1,234,567");
    }

    #[test]
    fn a_table_has_a_line_below_its_heads() {
        let mut table = Table::new(&["store", "writes/s"]);
        table.add(vec!["memory".to_owned(), rate(1_000.0)]);
        assert_eq!(
            table.to_string(),
            "| store | writes/s |\n|---|---:|\n| memory | 1,000 |\n"
        );
    }
}
