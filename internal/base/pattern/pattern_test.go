package pattern_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

func TestAPatternIsItsExpression(t *testing.T) {
	t.Parallel()

	word := pattern.New(`(\w)(\w+)`)

	require.True(t, word.MatchString("to be"))
	require.Equal(t, "to", word.FindString("to be"))
	require.Equal(t, []string{"to", "t", "o"}, word.FindStringSubmatch("to be"))
	require.Equal(t, []string{"to", "be"}, word.FindAllString("to be", -1))
	require.Equal(t, [][]int{{0, 2}, {3, 5}}, word.FindAllStringIndex("to be", -1))
	require.Equal(t, [][]string{{"to", "t", "o"}}, word.FindAllStringSubmatch("to be", 1))
	require.Len(t, word.FindAllSubmatch([]byte("to be"), -1), 2)
	require.Equal(t, "ot eb", word.ReplaceAllString("to be", "$2$1"))
	require.Equal(t, "TO BE", word.ReplaceAllStringFunc("to be", strings.ToUpper))
}

// An expression that is none would be found when it is used, which may be never in a test.
func TestAllPatternsAreExpressions(t *testing.T) {
	t.Parallel()

	found := 0

	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}

		ast.Inspect(file, func(node ast.Node) bool {
			call, isCall := node.(*ast.CallExpr)
			if !isCall || len(call.Args) != 1 {
				return true
			}

			called, _ := call.Fun.(*ast.SelectorExpr)
			if called == nil || called.Sel.Name != "New" {
				return true
			}

			of, _ := called.X.(*ast.Ident)
			literal, _ := call.Args[0].(*ast.BasicLit)

			if of == nil || of.Name != "pattern" || literal == nil {
				return true
			}

			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)

			_, err = regexp.Compile(text)
			require.NoError(t, err, path)

			found++

			return true
		})

		return nil
	}))

	require.Greater(t, found, 50)
}
