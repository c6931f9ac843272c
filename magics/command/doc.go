// Package command defines the syntax of %tfcluster. A table of verbs and their options ([Table])
// defines parsing, usage errors, help, completion, Shift-Tab and the reference in the
// documentation. Package verbs makes the table and executes the commands.
package command
