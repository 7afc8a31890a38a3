package inventory

import "github.com/talos-mage/talos-mage/internal/cluster/yamlfile"

// FileError is one mistake in one of the user's files.
type FileError = yamlfile.Error

// FileErrors lists the FileErrors in an error that this package returned, in the order of files and lines.
func FileErrors(err error) []*FileError { return yamlfile.Errors(err) }
