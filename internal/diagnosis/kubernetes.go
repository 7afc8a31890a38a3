package diagnosis

var kubernetesEntries []Entry
