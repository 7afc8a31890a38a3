// Command schematicids reads schematics, a line each in JSON's form, and prints for each the id that the Image
// Factory's own package gives it, or "refused: " and why.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/siderolabs/image-factory/pkg/schematic"
)

const longestLine = 1 << 20

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)

	for lines.Scan() {
		fmt.Println(answer(lines.Bytes()))
	}

	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(text []byte) string {
	parsed, err := schematic.Unmarshal(text)
	if err != nil {
		return fmt.Sprintf("refused: %q", err)
	}

	id, err := parsed.ID()
	if err != nil {
		return fmt.Sprintf("refused: %q", err)
	}

	return id
}
