// Package fanout runs one function over many items at once, bounded, and gives one result an item in the items' order.
// A limit of one is the sequential case of the same code.
package fanout

import (
	"context"
	"fmt"

	"github.com/sourcegraph/conc/panics"
	"github.com/sourcegraph/conc/pool"
)

// Collect runs do over all items, at most limit at once (limits below one count as one), whatever becomes of any of
// them: also after the context is done each item gets its call, so that each gets its result. Results are in the items'
// order.
//
// An item whose call panics takes none of the others with it; broken makes its result, from a *PanicError.
func Collect[T, R any](
	ctx context.Context, limit int, items []T, do func(context.Context, T) R, broken func(T, error) R,
) []R {
	results := make([]R, len(items))
	workers := pool.New().WithMaxGoroutines(max(1, limit))
	for i, item := range items {
		workers.Go(func() {
			if err := try(func() { results[i] = do(ctx, item) }); err != nil {
				results[i] = broken(item, err)
			}
		})
	}

	workers.Wait()

	return results
}

// PanicError is a defect of this program that ended the work on one item.
type PanicError struct {
	// Value is what the code panicked with.
	Value any
	// Stack is for debug logs; it isn't part of the error's text.
	Stack []byte
}

// Error names the defect without its stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("unexpected error inside the program: %v", e.Value)
}

// Unwrap gives the error that the code panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// try calls f and gives its panic as a *PanicError; nil if there was none.
func try(f func()) error {
	if recovered := panics.Try(f); recovered != nil {
		return &PanicError{Value: recovered.Value, Stack: recovered.Stack}
	}

	return nil
}
