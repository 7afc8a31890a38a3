// Package suggest finds the word that somebody most likely meant to type.
package suggest

import (
	"cmp"
	"slices"
	"strings"
)

// Word is the candidate closest to word by edit distance, ignoring case; the first of several equally close ones.
// It is empty when none is close enough to be a slip of the fingers: more than a third of the longer word differs.
func Word(word string, candidates []string) string {
	best, bestDistance := "", -1

	for _, candidate := range candidates {
		d := distance(strings.ToLower(word), strings.ToLower(candidate))

		if 3*d > max(len(word), len(candidate)) {
			continue
		}

		if bestDistance < 0 || d < bestDistance {
			best, bestDistance = candidate, d
		}
	}

	return best
}

// Slip is Word where more words are right than the candidates: at most two letters differ.
func Slip(word string, candidates []string) string {
	near := Word(word, candidates)
	if near == "" || distance(strings.ToLower(word), strings.ToLower(near)) > 2 {
		return ""
	}

	return near
}

// Nearest are at most so many candidates, the closest to word first; they need not be close.
func Nearest(word string, candidates []string, atMost int) []string {
	nearest := slices.Clone(candidates)
	slices.SortStableFunc(nearest, func(a, b string) int {
		return cmp.Compare(distance(strings.ToLower(word), strings.ToLower(a)),
			distance(strings.ToLower(word), strings.ToLower(b)))
	})

	return nearest[:min(atMost, len(nearest))]
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b
// (optimal string alignment: a swap counts once, as it is the commonest slip).
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)

	var beforeLast []int

	last := make([]int, len(to)+1)
	for j := range last {
		last[j] = j
	}

	for i := 1; i <= len(from); i++ {
		row := make([]int, len(to)+1)
		row[0] = i

		for j := 1; j <= len(to); j++ {
			cost := 1
			if from[i-1] == to[j-1] {
				cost = 0
			}

			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)

			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}

		beforeLast, last = last, row
	}

	return last[len(to)]
}
