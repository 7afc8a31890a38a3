package files_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/talos-mage/talos-mage/internal/check/table"
)

// TestMain looks, after a run of all tests, whether each of this package's own checks was seen to find something and to
// stay silent.
func TestMain(m *testing.M) {
	code := m.Run()

	if flag.Lookup("test.run").Value.String() == "" && code == 0 {
		for _, row := range table.Checks() {
			if row.ID >= "TM200" && !tried.ids[row.ID] {
				fmt.Printf("%s: no test triggers it: use judge or lived\n", row.ID)

				code = 1
			}
		}
	}

	os.Exit(code)
}
