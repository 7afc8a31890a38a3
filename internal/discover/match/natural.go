package match

import (
	"cmp"
	"strings"
)

// natural compares names so that cp2 comes before cp10.
func natural(a, b string) int {
	for a != "" && b != "" {
		headA, restA := head(a)
		headB, restB := head(b)

		if isDigit(rune(headA[0])) && isDigit(rune(headB[0])) {
			headA, headB = strings.TrimLeft(headA, "0"), strings.TrimLeft(headB, "0")
			if order := cmp.Compare(len(headA), len(headB)); order != 0 {
				return order
			}
		}

		if order := cmp.Compare(headA, headB); order != 0 {
			return order
		}

		a, b = restA, restB
	}

	return cmp.Compare(a, b)
}

// head takes the digits, or what is none, off the front.
func head(text string) (head, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool { return isDigit(r) != isDigit(rune(text[0])) })
	if end < 0 {
		return text, ""
	}

	return text[:end], text[end:]
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
