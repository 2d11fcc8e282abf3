{{ define "x" }}root sub c{{ end }}{{ define "y" }}y in sub{{ end }}
