// Package pages holds tests alone: every command that the pages tell people to type is typed.
package pages
