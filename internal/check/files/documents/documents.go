// Package documents holds the checks of documents and patches: what Talos refuses, and what says the same thing twice.
package documents

import (
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.DocumentConflict, check.Documents, checkDocumentConflicts),
		check.Whole(diagnosis.ConfigInvalid, check.Documents, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkConfigs),
		check.EachConfig(diagnosis.ControlPlaneKind, check.Documents, checkControlPlaneKinds),
		ofPatches(diagnosis.ControlPlaneKind, checkControlPlaneKindsOfPatches),
		check.Whole(diagnosis.FieldReplaced, check.Documents, diagnosis.NeedsTalconfig, toldByMaking),
		ofPatches(diagnosis.DocumentTwice, checkDocumentTwice),
		ofPatches(diagnosis.JSONPatchRefused, checkJSONPatches),
		ofPatches(diagnosis.PatchEmpty, checkEmptyPatches),
		ofPatches(diagnosis.PatchMissing, checkMissingPatches),
		ofPatches(diagnosis.PatchUnusable, checkUnusablePatches),
		ofPatches(diagnosis.PatchUnknownKey, checkUnknownKeys),
		ofPatches(diagnosis.PatchNewerKey, checkNewerKeys),
		ofPatches(diagnosis.PatchDeletesNone, checkDeletions),
		ofPatches(diagnosis.PatchListedTwice, checkPatchesTwice),
		ofPatches(diagnosis.ManifestDuplicate, checkManifests),
	}
}

// toldByMaking is for what making machine configs finds, since it depends on the documents that each of them has.
func toldByMaking(*check.Report, *check.Input) {}

func ofPatches(id diagnosis.ID, run func(*check.Report, *check.Input)) check.Check {
	return check.Whole(id, check.Documents, diagnosis.NeedsTalconfig, check.Milder(run))
}
