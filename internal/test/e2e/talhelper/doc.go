// Package talhelper tests that machine configs generated here mean the same as those of the real talhelper, from the
// same talconfig.yaml and the same secrets. It has tests alone; they need the program talhelper, which `.ci/run tools`
// builds.
package talhelper
