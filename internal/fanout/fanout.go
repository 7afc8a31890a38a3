// Package fanout runs one function over many items at once, bounded, and gives one result an item in the items' order.
// What happens after a failure is in the function's name. A limit of one is the sequential case of the same code.
package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

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

// UntilFailure runs do over the items, at most limit at once (limits below one count as one), until one fails or the
// context is done: then no further item is begun, and those that run finish. Results are in the items' order; an item
// that was not begun has the zero value. The error joins the items' errors in their order, and the context's cause if
// that left items out. A panic is an error of its item.
func UntilFailure[T, R any](
	ctx context.Context, limit int, items []T, do func(context.Context, T) (R, error),
) ([]R, error) {
	var (
		results = make([]R, len(items))
		// One place more for the reason why items were left out.
		errs    = make([]error, len(items)+1)
		failed  atomic.Bool
		leftOut atomic.Bool
		workers = pool.New().WithMaxGoroutines(max(1, limit))
	)

	for i, item := range items {
		// The pool blocks here until a worker is free, so the check belongs into the task: it must see the newest failure.
		workers.Go(func() {
			if failed.Load() {
				return
			}

			if ctx.Err() != nil {
				leftOut.Store(true)

				return
			}

			var err error

			if broken := try(func() { results[i], err = do(ctx, item) }); broken != nil {
				err = broken
			}

			if err != nil {
				errs[i] = err
				failed.Store(true)
			}
		})
	}

	workers.Wait()

	if leftOut.Load() {
		errs[len(items)] = context.Cause(ctx)
	}

	return results, join(errs)
}

// join is errors.Join, but leaves a single error as it is.
func join(errs []error) error {
	var (
		only  error
		count int
	)

	for _, err := range errs {
		if err != nil {
			only = err
			count++
		}
	}

	if count == 1 {
		return only
	}

	return errors.Join(errs...)
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
