package syncbuffer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
)

func TestNothingOfWhatSeveralWriteIsLost(t *testing.T) {
	t.Parallel()

	var (
		buffer  syncbuffer.Buffer
		writers sync.WaitGroup
	)

	require.Empty(t, buffer.String())

	for i := range 8 {
		writers.Go(func() {
			for range 100 {
				fmt.Fprintf(&buffer, "from %d\n", i)

				_ = buffer.String()
			}
		})
	}

	writers.Wait()

	for i := range 8 {
		require.Equal(t, 100, strings.Count(buffer.String(), fmt.Sprintf("from %d\n", i)))
	}
}
