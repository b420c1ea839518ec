//! The statements that are the same in every database, but for how their parameters are written.

use sqlx::SqlStr;

use super::bound::{Bound, Value};
use super::row::FENCE_COLUMNS;
use super::statement;

/// How a database writes the parameters of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "which of them is used depends on which databases are"
)]
pub(crate) enum Parameters {
    /// `$1`, `$2`, each as often as it is needed.
    Numbered,
    /// `?`, each with a value of its own.
    InOrder,
}

/// A statement that takes values.
#[derive(Debug)]
pub(crate) struct Statement {
    text: SqlStr,
    /// Which value each parameter takes, counted from one. `None` where the text itself says so.
    order: Option<Vec<usize>>,
}

impl Statement {
    /// Makes a statement of a text whose parameters are `$1` to at most `$9`.
    pub(crate) fn new(text: &str, parameters: Parameters) -> Self {
        if parameters == Parameters::Numbered {
            return Self {
                text: statement(text.to_owned()),
                order: None,
            };
        }
        let mut pieces = text.split('$');
        let mut in_order = pieces.next().unwrap_or_default().to_owned();
        let mut order = Vec::new();
        for piece in pieces {
            let mut rest = piece.chars();
            let number = rest.next().and_then(|digit| digit.to_digit(10));
            order.extend(number.and_then(|number| usize::try_from(number).ok()));
            in_order.push('?');
            in_order.push_str(rest.as_str());
        }
        Self {
            text: statement(in_order),
            order: Some(order),
        }
    }

    /// Gives it values: the first is that of `$1`.
    pub(crate) fn bind<'v>(&self, values: impl Into<Vec<Value<'v>>>) -> Bound<'v> {
        let values = values.into();
        let values = match &self.order {
            None => values,
            Some(order) => {
                let value = |number: &usize| values.get(number.checked_sub(1)?).cloned();
                order.iter().filter_map(value).collect()
            }
        };
        Bound::new(self.text.clone(), values)
    }
}

/// The statements that every database has.
///
/// `$1` to `$5` are the fence as [`presented`](super::bound::presented), `$6` to `$9` the change: its
/// sequence, its write id, its data, and the checksum of all that.
#[derive(Debug)]
pub struct Statements {
    /// Makes a change under the fence that is presented: check and write in one.
    pub(super) put: Statement,
    /// Makes a commit wait for a change that was seen. `None` where none is seen before it is durable.
    pub(super) confirm: Option<Statement>,
    pub(super) fence: Statement,
    pub(super) fences: Statement,
}

impl Statements {
    /// The statements for a table. `confirm` is an assignment that changes nothing of what is kept in a
    /// row, but whose commit waits until everything before it is durable.
    pub(crate) fn new(table: &str, parameters: Parameters, confirm: Option<&str>) -> Self {
        let fenced = "resource = $1 AND epoch = $2 AND cluster = $3 AND session = $4 \
                      AND fence_checksum = $5";
        let made = |text: String| Statement::new(&text, parameters);
        Self {
            put: made(format!(
                "UPDATE {table} SET written_epoch = $2, written_cluster = $3, \
                 written_session = $4, written_sequence = $6, write_id = $7, data = $8, \
                 checksum = $9 WHERE {fenced} AND (written_epoch IS NULL \
                 OR written_epoch < $2 OR written_sequence < $6)"
            )),
            confirm: confirm.map(|confirm| {
                made(format!(
                    "UPDATE {table} SET {confirm} WHERE {fenced} AND written_epoch = $2 \
                     AND written_sequence = $6 AND write_id = $7"
                ))
            }),
            fence: made(format!(
                "SELECT {FENCE_COLUMNS} FROM {table} WHERE resource = $1"
            )),
            fences: made(format!(
                "SELECT {FENCE_COLUMNS} FROM {table} WHERE resource > $1 \
                 ORDER BY resource LIMIT $2"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_in_order_take_the_values_of_their_numbers() {
        let text = "UPDATE t SET a = $2, b = $3 WHERE c = $1 AND a < $2";
        let in_order = Statement::new(text, Parameters::InOrder);
        assert_eq!(
            in_order.text.as_str(),
            "UPDATE t SET a = ?, b = ? WHERE c = ? AND a < ?"
        );
        assert_eq!(in_order.order, Some(vec![2, 3, 1, 2]));
        let numbered = Statement::new(text, Parameters::Numbered);
        assert_eq!(numbered.text.as_str(), text);
    }
}
