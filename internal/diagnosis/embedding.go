package diagnosis

// What is wrong in a program that runs recipes as part of itself.
const (
	BadRecipe     ID = "TM430"
	OwnCodeFailed ID = "TM431"
)

var embeddingEntries = []Entry{
	{
		ID: BadRecipe, Severity: Failure, Exit: ExitBadInput,
		Title: "A recipe that a Go program made can't be run",
		Cause: "It has no name or no steps, a step or a hook has no code, a hook is for a step that the run does not have, " +
			"or an option is no setting. Nothing was done.",
		Remedy: "Correct the program that makes the recipe; the message names the field. docs/importing.md has an example.",
		Source: "talos-mage: docs/importing.md",
	},
	{
		ID: OwnCodeFailed, Severity: Failure, Exit: ExitUnexpected,
		Title: "A Go program's own step or hook failed",
		Cause: "The program that runs the recipe has put code of its own before, after or between the steps, and that " +
			"returned an error. The recipe ends there: a hook's error before a step keeps that step from being run.",
		Remedy: "Do what the error says, then run the program again: it looks at the nodes first and continues where it " +
			"stopped.",
		Source: "talos-mage: docs/importing.md",
	},
}
