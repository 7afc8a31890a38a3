// Package syncbuffer keeps what goroutines write at the same time.
package syncbuffer

import (
	"bytes"
	"sync"
)

// Buffer is an io.Writer that can be read while others write. The zero value is empty.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer; it never fails.
func (b *Buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buffer.Write(data)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buffer.String()
}
