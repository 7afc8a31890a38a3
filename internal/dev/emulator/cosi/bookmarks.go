package cosi

import (
	"bytes"
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
)

// bookmarkState makes the bookmarks of a boot's watches its own. In one process all states share a cookie, so without
// it a client could go on with the bookmark of the boot before, which a real node refuses.
type bookmarkState struct {
	state.CoreState

	cookie []byte
}

// StaleBookmarks makes a boot refuse the bookmarks of other boots.
func StaleBookmarks(core state.CoreState, boot string) state.CoreState {
	return &bookmarkState{CoreState: core, cookie: []byte(boot)}
}

// Watch implements state.CoreState.
func (s *bookmarkState) Watch(ctx context.Context, pointer resource.Pointer, out chan<- state.Event,
	options ...state.WatchOption) error {
	var given state.WatchOptions
	for _, option := range options {
		option(&given)
	}

	if given.StartFromBookmark != nil {
		mine, ok := s.strip(given.StartFromBookmark)
		if !ok {
			return errStaleBookmark{}
		}

		options = append(options, state.WithStartFromBookmark(mine))
	}

	in := make(chan state.Event)
	if err := s.CoreState.Watch(ctx, pointer, in, options...); err != nil {
		return err
	}

	go s.mark(ctx, in, out)

	return nil
}

// WatchKind implements state.CoreState.
func (s *bookmarkState) WatchKind(ctx context.Context, kind resource.Kind, out chan<- state.Event,
	options ...state.WatchKindOption) error {
	options, err := s.kindOptions(options)
	if err != nil {
		return err
	}

	in := make(chan state.Event)
	if err := s.CoreState.WatchKind(ctx, kind, in, options...); err != nil {
		return err
	}

	go s.mark(ctx, in, out)

	return nil
}

// WatchKindAggregated implements state.CoreState.
func (s *bookmarkState) WatchKindAggregated(ctx context.Context, kind resource.Kind, out chan<- []state.Event,
	options ...state.WatchKindOption) error {
	options, err := s.kindOptions(options)
	if err != nil {
		return err
	}

	in := make(chan []state.Event)
	if err := s.CoreState.WatchKindAggregated(ctx, kind, in, options...); err != nil {
		return err
	}

	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case events := <-in:
				for i := range events {
					events[i].Bookmark = s.prefix(events[i].Bookmark)
				}

				select {
				case <-ctx.Done():
					return
				case out <- events:
				}
			}
		}
	}()

	return nil
}

func (s *bookmarkState) kindOptions(options []state.WatchKindOption) ([]state.WatchKindOption, error) {
	var given state.WatchKindOptions
	for _, option := range options {
		option(&given)
	}

	if given.StartFromBookmark == nil {
		return options, nil
	}

	mine, ok := s.strip(given.StartFromBookmark)
	if !ok {
		return nil, errStaleBookmark{}
	}

	return append(options, state.WithKindStartFromBookmark(mine)), nil
}

func (s *bookmarkState) mark(ctx context.Context, in <-chan state.Event, out chan<- state.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-in:
			event.Bookmark = s.prefix(event.Bookmark)

			select {
			case <-ctx.Done():
				return
			case out <- event:
			}
		}
	}
}

func (s *bookmarkState) prefix(bookmark state.Bookmark) state.Bookmark {
	if bookmark == nil {
		return nil
	}

	return append(bytes.Clone(s.cookie), bookmark...)
}

func (s *bookmarkState) strip(bookmark state.Bookmark) (state.Bookmark, bool) {
	return bytes.CutPrefix(bookmark, s.cookie)
}

// errStaleBookmark is the error that a state returns for the bookmark of another one.
type errStaleBookmark struct{}

// Error implements error.
func (errStaleBookmark) Error() string { return "invalid watch bookmark" }

// InvalidWatchBookmarkError marks the error for the API.
func (errStaleBookmark) InvalidWatchBookmarkError() {}
