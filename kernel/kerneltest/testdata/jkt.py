"""jupyter_kernel_test against the kernelspec named by $KERNEL; the samples are ipykernel's own."""

import os
import unittest

import jupyter_kernel_test as jkt
import starting


class KernelTests(jkt.KernelTests):
    """Every test of the suite."""

    # ruff: noqa: RUF012 (the suite reads class attributes)
    @classmethod
    def setUpClass(cls) -> None:
        """Start the kernel."""
        cls.km, cls.kc = starting.start(kernel_name=cls.kernel_name)

    kernel_name = os.environ.get("KERNEL", "python3")
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_inspect_sample = "zip"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>t</b>'))", "mime": "text/html"}
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_clear_output = "from IPython.display import clear_output; clear_output()"


if __name__ == "__main__":
    unittest.main(verbosity=2)
