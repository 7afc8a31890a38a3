package belonging

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// reading are what reading the files finds.
func reading() []check.Check {
	rows := check.Several(check.Reading, 0,
		func(_ context.Context, r *check.Report, in *check.Input) { r.Put(in.Unreadable()...) },
		diagnosis.FileMissing, diagnosis.FileUnreadable, diagnosis.FileSyntax, diagnosis.FileKey, diagnosis.FileType,
		diagnosis.FileVariable,
		diagnosis.FileValue, diagnosis.FileAddress, diagnosis.FileDuplicate, diagnosis.FileNoNodes)

	for i, row := range rows {
		rows[i] = row.IdleIf(unreadInventory(row.ID))
	}

	return rows
}

// unreadInventory says what of the inventory could not be looked at.
func unreadInventory(id diagnosis.ID) func(*check.Input) string {
	return func(in *check.Input) string {
		switch {
		case id == diagnosis.FileMissing || id == diagnosis.FileUnreadable:
			return ""
		case in.Talconfig == nil && in.Cluster == nil, in.Cluster == nil && id != diagnosis.FileSyntax:
			return "the inventory can't be read"
		default:
			return ""
		}
	}
}

// noConfig says that there is no machine config.
func noConfig(in *check.Input) string {
	if len(in.Configs) == 0 {
		return in.None("there is no machine config that can be read")
	}

	return ""
}
