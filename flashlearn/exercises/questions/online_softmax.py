"""Questions of notebook 03."""

from flashlearn.exercises.questions.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="03.complexity",
        text="Online softmax reads x twice where safe softmax reads it three times. What falls?",
        right="the bytes read: from 3N to 2N numbers; the exponentials stay O(N)",
        wrong=(
            Wrong(
                "the time complexity, from O(N²) to O(N)",
                "fewer passes mean another complexity class",
                "myth: online softmax lowers the time complexity",
            ),
            Wrong(
                "nothing: it is the same algorithm",
                "a pass over memory costs nothing",
                "myth: online softmax lowers the time complexity",
            ),
        ),
        why="A pass over memory is saved; each element still needs its exponential.",
        shown="",
    ),
)
RECALLS: tuple[Question, ...] = ()
