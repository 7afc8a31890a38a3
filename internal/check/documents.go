package check

import "github.com/talos-mage/talos-mage/internal/diagnosis"

// documentChecks are those of documents and patches: what Talos refuses, and what says the same thing twice.
func documentChecks() []Check {
	return []Check{
		EachConfig(diagnosis.DocumentConflict, Documents, checkDocumentConflicts),
		Whole(diagnosis.ConfigInvalid, Documents, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkConfigs),
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

func ofPatches(id diagnosis.ID, run func(*Report, *Input)) Check {
	return Whole(id, Documents, diagnosis.NeedsTalconfig, Milder(run))
}
