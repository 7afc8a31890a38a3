// A program that compares the Go API that importers get with the committed description of it.
module github.com/talos-mage/talos-mage/tools/apicheck

go 1.26.8

require golang.org/x/exp v0.0.0-20260718201538-764159d718ef

require golang.org/x/tools v0.48.0 // indirect
