package check

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// reading are what reading the files finds.
func reading() []Check {
	rows := Several(Reading, 0, func(_ context.Context, r *Report, in *Input) { r.Put(in.Unreadable()...) },
		diagnosis.FileMissing, diagnosis.FileUnreadable, diagnosis.FileSyntax, diagnosis.FileKey, diagnosis.FileType,
		diagnosis.FileVariable,
		diagnosis.FileValue, diagnosis.FileAddress, diagnosis.FileDuplicate, diagnosis.FileNoNodes)

	for i, row := range rows {
		rows[i] = row.IdleIf(unreadInventory(row.ID))
	}

	return rows
}

// unreadInventory says what of the inventory could not be looked at.
func unreadInventory(id diagnosis.ID) func(*Input) string {
	return func(in *Input) string {
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
func noConfig(in *Input) string {
	if len(in.Configs) == 0 {
		return in.None("there is no machine config that can be read")
	}

	return ""
}
