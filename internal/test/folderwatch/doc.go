// Package folderwatch tells tests of changes of files as they happen, on Linux.
package folderwatch
